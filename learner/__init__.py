"""The role that learns: replay -> policies."""
