"""`python -m src.prepare`: one line per dataset; if one fails, the others are still tried."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from src import prepare
from src.data import sources
from src.data.prepare import FETCHED


def test_real_files_are_verified(
    data_root: Path, data_file: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [data_file(f"{name}/raw").absolute() for name in ("MNIST", "FashionMNIST")]
    assert prepare.main(["mnist", "fmnist", "--root", str(data_root)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"mnist: 4 files verified in {folders[0]}, from the local root",
        f"fmnist: 4 files verified in {folders[1]}, from the local root",
    ]


def test_a_failure_is_told_after_the_others_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unplugged(scratch: Path) -> Path:
        raise ConnectionError("no network")

    nothing_needed = sources.FileSet("Nothing", "nothing", {}, {})
    unreachable = sources.FileSet("CIFAR-10", "cifar", {"test_batch": "0" * 32}, {"a mirror": unplugged})
    monkeypatch.setattr(sources, "DATASETS", {"cifar10": unreachable, "mnist": nothing_needed})
    assert prepare.main(["cifar10", "mnist", "--root", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("mnist: 0 files verified")
    assert "- a mirror failed: no network" in err and str(tmp_path / "cifar/test_batch") in err


def test_the_names_are_those_of_the_datasets_with_files() -> None:
    assert tuple(sources.DATASETS) == FETCHED
    configs = Path(prepare.__file__).parents[1] / "conf" / "dataset"
    assert all((configs / f"{name}.yaml").is_file() for name in prepare.NAMES)


def test_the_default_root_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GP_DECODERS_DATA", raising=False)
    assert prepare.arguments(["mnist"]).root == Path("data")
    monkeypatch.setenv("GP_DECODERS_DATA", "/elsewhere")
    assert prepare.arguments(["mnist"]).root == Path("/elsewhere")


def test_an_unknown_dataset_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        prepare.main(["imagenet"])
    assert "mnist" in capsys.readouterr().err


def test_help_needs_no_heavy_import() -> None:
    script = "import sys, src.prepare; print({'numpy', 'torch', 'filelock'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
