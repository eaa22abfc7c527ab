"""A module that does not import while memory is short."""

raise MemoryError("for the moment")
