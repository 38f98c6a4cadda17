"""Progress bars show on a terminal, unless someone does not want them."""

import sys

import pytest

from src.runs.bars import bar, bars


def shown(name: str, capsys: pytest.CaptureFixture[str]) -> bool:
    assert list(bar(range(3), name)) == [0, 1, 2]
    return name in capsys.readouterr().err


def test_a_bar_shows_on_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shown("counting", capsys)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert shown("counting", capsys)


def test_bars_that_are_not_wanted_do_not_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with bars(wanted=False):
        assert not shown("outside", capsys)
        with bars(wanted=True):
            assert not shown("inside", capsys)
    with bars(wanted=True):
        assert shown("again", capsys)
