"""Sweeps, one file an experiment: which cells, which seeds."""
