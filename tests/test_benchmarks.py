"""The benchmark computes the ratios it prints, and fails where one misses its target."""

import json
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import sleep

import pytest

from benchmarks import growth, scale
from benchmarks.__main__ import ROWS, main, rows_of
from benchmarks.rows import faster, seconds, slower
from benchmarks.training import bare_steps, started
from src.data import mnist_million
from src.data.images import Digits
from tests.configs import composed


def test_a_ratio_is_the_median_over_the_rounds() -> None:
    """Each round's own ratio: one noisy round, which slows both, does not move it."""
    ours, other = [0.002, 0.200, 0.004], [0.001, 0.100, 0.001]
    row = slower("ours", "theirs", ours, other, limit=2.0)
    assert (row.ratio, row.ours, row.other) == (pytest.approx(2.0), pytest.approx(4.0), pytest.approx(1.0))
    assert row.reached and "MISSED" not in str(row)
    row = faster("ours", "theirs", other, ours, limit=2.5)
    assert row.ratio == pytest.approx(2.0)
    assert not row.reached and "MISSED" in str(row)


def test_functions_take_turns_and_are_timed() -> None:
    turns: list[str] = []

    def quick() -> None:
        turns.append("a")

    def slow() -> None:
        turns.append("b")
        sleep(0.01)

    times = seconds(quick, slow, repeats=2, warm_up=1)
    assert turns == ["a", "b"] * 3
    assert [len(record) for record in times] == [2, 2]
    assert min(times[1]) >= 0.01


def test_an_exponent_is_that_of_the_growth() -> None:
    row = growth.exponent("step", (10, 100, 1000), [[0.001 * n**1.5] for n in (10, 100, 1000)], 2.2)
    assert row.ratio == pytest.approx(1.5)


def test_every_row_has_a_function() -> None:
    for name in ROWS:
        assert iter(rows_of(name))


def test_check_names_what_misses_and_all_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The memory rows as they are, then with a target that nothing reaches."""
    monkeypatch.setattr(growth, "ACTIVE", (100,))
    kept = tmp_path / "new" / "rows.json"
    main(["--only", "memory", "--check", "--json", str(kept)])
    rows = json.loads(kept.read_text())["rows"]
    assert [row["name"] for row in rows] == [f"memory of a sas step, A=100, D={d}" for d in (784, 3072)]
    assert all(row["reached"] and 0.5 < row["ratio"] < 2 for row in rows)
    assert "<= 2" in capsys.readouterr().out
    monkeypatch.setattr(growth, "needed_bytes", lambda *_: 1.0)
    with pytest.raises(SystemExit, match="missed: memory of a sas step, A=100, D=784 against the tensors"):
        main(["--only", "memory", "--check", "--json", str(kept)])
    assert not any(row["reached"] for row in json.loads(kept.read_text())["rows"])


def test_the_bare_loop_trains() -> None:
    config, data = composed("model=sas", "active_set=a50"), Digits(batch_size=256)
    data.setup()
    model = started(config, data)
    batch = data.train.draw(256, 0)
    before = model.objective(batch).loss
    for _ in islice(bare_steps(model, data), 10):
        pass
    assert model.objective(batch).loss < before


def test_a_million_digits_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_file: Callable[[str], Path]
) -> None:
    """The rows that need them, with fewer; what the data folder has already is used."""
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    scratch.mkdir()
    (data / "MNIST").mkdir(parents=True)
    (data / "MNIST" / "raw").symlink_to(data_file("MNIST/raw").absolute())
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for name, value in (("ROOT", data), ("SMALL", 1100), ("LARGE", 2200)):
        monkeypatch.setattr(scale, name, value)
    mnist_million.make(data, 1100)
    kept = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    rows = scale.scale()
    assert next(rows).name == "sas step with its batch, N = 2,200"
    (images,) = scratch.glob("*/mnist_million/images_2200.npy")
    assert images.stat().st_size == 128 + 2200 * 784 and images.with_name("images_1100.npy").is_symlink()
    assert next(rows).unit == "MB" and next(rows).unit == "s"
    assert list(scratch.iterdir()) == [] and {path: path.stat().st_mtime_ns for path in data.rglob("*")} == kept
