"""Whether an ONNX model would have its tensors read from files; pure.

A graph from a topic must not make us read files. A tensor that is kept elsewhere says
where in an entry keyed "location", and protobuf writes such a key as its length and its
letters, however deep in the model it is. The length may be a varint longer than it need
be: readers take up to five bytes, of which all but the first add nothing.
"""

from __future__ import annotations

import re

_LOCATION = re.compile(rb"(?:\x08|\x88\x80*\x00)location")


def names_external_data(onnx: bytes) -> bool:
    """Return whether any tensor of a model may be kept outside it.

    It errs on the safe side: a node or value whose name is just "location" counts too.

    Args:
        onnx: a serialized ModelProto, or anything.
    """
    return _LOCATION.search(onnx) is not None
