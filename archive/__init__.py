"""The past: trajectories kept as files, replayed, exchanged, and traced."""
