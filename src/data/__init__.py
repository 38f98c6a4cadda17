"""Datasets: tensors in memory, an index with every sample."""
