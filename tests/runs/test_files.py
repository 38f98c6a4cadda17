"""Files that are written whole or not at all."""

from pathlib import Path

import pytest

from src.runs.errors import UserError
from src.runs.files import read_json, whole, write_json, write_whole


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_whole(path, "old")
    with pytest.raises(ZeroDivisionError), whole(path) as unfinished:
        unfinished.write_text("half of the ne")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_json_is_read_as_it_was_written_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", {"a": [1, None], "b": 0.1})
    assert read_json(tmp_path / "file.json") == {"a": [1, None], "b": 0.1}
    assert read_json(tmp_path / "none.json") == {}


def test_broken_json_is_one_sentence_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text('{"a": ')
    with pytest.raises(UserError, match=r"file\.json is not valid JSON .*: fix the file, or remove its folder"):
        read_json(tmp_path / "file.json")
