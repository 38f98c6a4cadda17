"""Published values."""

from typing import Any


def published_values(model: str, dataset: str, config: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """To be written."""
    return {}, []
