"""This machine, measured with the production code."""
