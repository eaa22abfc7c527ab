"""What peers run, each in its own environment; nothing here imports what is ours."""
