"""Runs on disk: identity, record, lock, whole files. Knows nothing of torch."""
