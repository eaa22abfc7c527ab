"""Experiments as desired state: specs, members, agents and their role processes."""
