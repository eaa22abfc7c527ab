"""Which policies of an experiment there are, how good they are, and their bytes."""
