"""The evaluation of trained models: one file per task."""
