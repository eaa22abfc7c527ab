"""How far behind consumer groups are, in records, steps and seconds."""
