"""Trajectories -> replay: unrolls become transitions that a learner can learn from."""
