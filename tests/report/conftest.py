"""Tests of the page in a real browser run when they are asked for: `make test-browser`."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: opens the report's page in Chromium; run by `make test-browser`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "browser" in config.getoption("markexpr"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="needs a browser: run by `make test-browser`"))
