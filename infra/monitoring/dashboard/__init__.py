"""A page that shows what is watched."""
