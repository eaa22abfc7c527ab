"""Learning curves: the whole pipeline beside another library's same algorithm.

``tasks`` says what is learnt; ``ours`` and ``peers`` learn it, each in processes of its
own, one after the other; ``results`` keeps what came of it; ``figures`` draws it.
"""
