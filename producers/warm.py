"""What a role process would do first, done in the server that it is forked from."""

from __future__ import annotations

from schemas.registry import shipped


def warm_up() -> None:
    """Import what is imported late, and parse the schemas; starts no thread."""
    # A worker needs it only when the first policy comes: elsewhere it is imported then.
    import onnxruntime  # noqa: F401

    shipped()
