"""Frozen code: one copy per content."""

from pathlib import Path

import pytest

from src.launch import freeze
from tests.launch.commands import copied_code


def test_code_that_is_edited_is_another_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if only the content of a file changes, and neither its name nor its length."""
    code = copied_code(tmp_path)
    monkeypatch.setattr(freeze, "CODE", code)
    before = freeze.freeze(tmp_path / "frozen")
    assert freeze.freeze(tmp_path / "frozen") == before
    config = code / "conf" / "config.yaml"
    edited = config.read_text().replace("seed: 0", "seed: 1")
    config.write_text(edited)
    after = freeze.freeze(tmp_path / "frozen")
    assert after != before and len(list((tmp_path / "frozen").iterdir())) == 2
    assert "seed: 0" in (before / "conf" / "config.yaml").read_text()
    assert (after / "conf" / "config.yaml").read_text() == edited


def test_a_copy_has_code_and_configs_and_no_caches(tmp_path: Path) -> None:
    copy = freeze.freeze(tmp_path)
    for name in ("src/train.py", "conf/config.yaml", "sweeps/sweep/smoke.yaml", "src/report/page.html"):
        assert (copy / name).read_bytes() == (freeze.CODE / name).read_bytes()
    assert not list(copy.rglob("__pycache__"))
