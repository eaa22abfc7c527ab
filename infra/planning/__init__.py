"""A spec, and what things cost -> the hardware that it needs, on paper; pure."""
