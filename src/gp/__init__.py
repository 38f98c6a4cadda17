"""Gaussian-process mathematics: pure functions on tensors."""
