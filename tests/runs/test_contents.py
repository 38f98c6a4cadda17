"""A user's data files count by their content: read once, whatever their paths, and by samples if they are large."""

import json
import os
import time
from pathlib import Path

import pytest

from src.runs import contents, identity
from src.runs.contents import cache_file, digest
from src.runs.request import with_contents
from tests.configs import composed


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    contents.remembered.cache_clear()


def write(path: Path, content: bytes, age: float = 60.0) -> Path:
    """Write a file that has this age in seconds."""
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)
    return path


def again(path: Path) -> str:
    """The digest for a new process, which has the cache only."""
    contents.remembered.cache_clear()
    return digest(path)


def test_content_counts_and_the_path_does_not(tmp_path: Path) -> None:
    one, same = write(tmp_path / "one.npy", b"a" * 5_000_000), write(tmp_path / "same.npy", b"a" * 5_000_000)
    assert digest(one) == digest(same) and len(digest(one)) == 16
    assert digest(write(tmp_path / "last.npy", b"a" * 4_999_999 + b"b")) != digest(one)


def test_a_file_that_is_written_again_counts_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "x.npy", b"before", age=60)
    before = digest(path)
    assert again(write(path, b"after!", age=30)) != before  # of the same size
    assert again(write(path, b"before", age=20)) == before


def test_a_digest_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.npy", b"content")
    found = digest(path)
    monkeypatch.setattr(contents, "whole", lambda path: pytest.fail("the file is read again"))
    assert digest(path) == again(path) == found
    assert list(json.loads(cache_file().read_text())) == [str(path)]


def test_a_file_that_was_just_written_is_not_cached(tmp_path: Path) -> None:
    """It may be written again within the resolution of its time."""
    path = write(tmp_path / "x.npy", b"content", age=0)
    digest(path)
    assert not cache_file().exists()


def test_files_that_are_gone_leave_the_cache(tmp_path: Path) -> None:
    gone, here = write(tmp_path / "gone.npy", b"1"), write(tmp_path / "here.npy", b"2")
    digest(gone)
    gone.unlink()
    digest(here)
    assert list(json.loads(cache_file().read_text())) == [str(here)]


@pytest.mark.parametrize("damage", ["", "[1]", "{", '{"%s": 3}', '{"%s": [7]}'])
def test_a_damaged_cache_is_no_cache(damage: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.npy", b"content")
    cache_file().parent.mkdir(parents=True)
    cache_file().write_text(damage.replace("%s", str(path)))
    assert digest(path) == contents.whole(path)


def test_without_a_place_for_the_cache_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "file", b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = write(tmp_path / "x.npy", b"content")
    assert digest(path) == contents.whole(path)


def test_a_large_file_counts_by_size_time_and_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "LARGEST_WHOLE", 100)
    monkeypatch.setattr(contents, "BLOCK", 2)
    monkeypatch.setattr(contents, "BLOCKS", 3)
    path = write(tmp_path / "x.npy", bytes(101))
    stamp = path.stat().st_mtime_ns

    def changed(place: int) -> str:
        other = bytearray(101)
        other[place] = 1
        path.write_bytes(other)
        os.utime(path, ns=(stamp, stamp))
        return contents.sampled(path, 101, stamp)

    found = digest(path)
    assert changed(20) == found  # between two blocks
    assert len({found, changed(0), changed(50), changed(100)}) == 4  # in the first, the middle and the last
    assert contents.sampled(path, 101, stamp + 1) != contents.sampled(path, 101, stamp)
    (line,) = contents.large({"train": str(path), "test": None})
    assert line.startswith(f"dataset.train={path} has 0.0 GB: it counts by its size, its time and 3 blocks")
    assert contents.large({"train": str(write(tmp_path / "small.npy", b"x"))}) == []


def test_a_run_is_known_by_the_content_of_its_files(tmp_path: Path) -> None:
    def fingerprint(path: Path) -> str:
        return identity.fingerprint(with_contents(composed("dataset=array", f"dataset.train={path}")))

    first = write(tmp_path / "x.npy", b"1")
    before = fingerprint(first)
    assert fingerprint(write(tmp_path / "moved.npy", b"1")) == before
    assert fingerprint(write(tmp_path / "other.npy", b"2")) != before
    contents.remembered.cache_clear()
    assert fingerprint(write(first, b"2", age=30)) != before
    config = with_contents(composed("dataset=array", f"dataset.train={first}"))
    assert config["content"] == {"train": digest(first)} and config["dataset"]["train"] == str(first)


def test_files_that_the_product_names_do_not_change_a_runs_identity(tmp_path: Path) -> None:
    for overrides in (["dataset=mnist"], ["dataset=array", f"dataset.train={tmp_path / 'none.npy'}"]):
        config = composed(*overrides)
        assert with_contents(config) == config
