"""Hydra's config groups, one folder a choice."""
