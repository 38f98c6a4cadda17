"""Runs on disk: identity, request, record, lock, whole files. This package never imports torch."""
