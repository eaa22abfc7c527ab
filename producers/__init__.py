"""Env workers and the evaluator: environments -> trajectories."""
