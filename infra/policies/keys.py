"""Keys of the topic of policies; schemas/topics.py has all of them."""

CURRENT_KEY = "policy"
"""The newest version."""

BEST_KEY = "best"
"""The best one that an evaluator has found."""

CHUNK_KEY = "chunk"
"""Followed by ``/<slot>/<i>``: a part of the tensors of a large version."""
