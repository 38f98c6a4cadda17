"""Trained models in Python: what `load` and the estimators share."""
