"""The command `gp-decoders` is the modules under one name; in a wheel it works without a checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from src import commands
from tests.launch.commands import ROOT, TINY

PARTS = ("src", "conf", "sweeps", "pyproject.toml", "README.md", "LICENSE")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | None:
    monkeypatch.setattr(sys, "argv", ["gp-decoders", *arguments])
    return commands.main()


def test_help_names_every_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch) == call(monkeypatch, "--help") == 0
    assert all(capsys.readouterr().out.count(f"\n  {name} ") == 2 for name in ["train"])
    assert list(commands.COMMANDS) == ["train", "plan", "report", "evaluate", "prepare"]


def test_a_command_gets_the_other_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    call(monkeypatch, "train", "--help")
    assert "python -m src.train model=sas dataset=mnist" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="nowhere"):
        call(monkeypatch, "report", "nowhere")


def test_a_command_that_does_not_exist_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"There is no command tain\. Did you mean train\?"):
        call(monkeypatch, "tain")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with our wheel; the packages that it needs are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        source, copy = ROOT / part, folder / "source" / part
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")]
    subprocess.run(build, check=True, cwd=folder)
    shutil.rmtree(folder / "source")  # nothing may need it
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (wheel,) = folder.glob("gp_decoders-*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True, cwd=folder
    )
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read
    return folder / "venv"


def gp_decoders(venv: Path, *arguments: str, cwd: Path) -> str:
    """What `gp-decoders` prints in a folder, with nothing of this checkout on its path."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GP_DECODERS_HOME")}
    command = [str(venv / "bin" / "gp-decoders"), *arguments]
    result = subprocess.run(command, cwd=cwd, env={**clean, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.wheel
def test_a_wheel_has_working_commands_and_writes_to_the_current_folder(venv: Path, tmp_path: Path) -> None:
    (site,) = (venv / "lib").glob("python*/site-packages")
    installed = {path for path in site.rglob("*") if "__pycache__" not in path.parts}
    (tmp_path / "src").mkdir()  # a package of the user's own, which is not ours
    (tmp_path / "src" / "__init__.py").write_text("raise ImportError('the src of another project')")
    assert "seed=0,1,2" in gp_decoders(venv, "train", "--help", cwd=tmp_path)
    assert "2 cells: 2 missing" in gp_decoders(venv, "plan", "-m", "seed=0,1", *TINY, cwd=tmp_path)
    assert "run folder: outputs/sas-digits-" in gp_decoders(venv, "train", *TINY, cwd=tmp_path)
    sweep = gp_decoders(venv, "train", "-m", "seed=0,1", "hydra/launcher=parallel", *TINY, cwd=tmp_path)
    assert "2 cells, 1 of them to do" in sweep and "2 cells: 2 done" in sweep
    assert len(list(tmp_path.glob("outputs/.code/*/src/train.py"))) == 1
    assert "2 runs: 2 done" in gp_decoders(venv, "report", cwd=tmp_path)
    run = next(tmp_path.glob("outputs/sas-digits-*-s0-*"))
    assert "stored in: " in gp_decoders(venv, "evaluate", str(run), "evaluation.active_sets=2", cwd=tmp_path)
    assert "mnist_million" in gp_decoders(venv, "prepare", "--help", cwd=tmp_path)
    assert {path for path in site.rglob("*") if "__pycache__" not in path.parts} == installed
    assert {path.name for path in tmp_path.iterdir()} == {"outputs", "src"}
    assert '"git": null' in (run / "record.json").read_text()


@pytest.mark.wheel
def test_a_wheel_holds_everything_but_tests(venv: Path) -> None:
    (site,) = (venv / "lib").glob("python*/site-packages")
    ours = [path for part in ("src", "conf", "sweeps") for path in (ROOT / part).rglob("*") if path.is_file()]
    missing = [
        path for path in ours if "__pycache__" not in path.parts and not (site / path.relative_to(ROOT)).exists()
    ]
    assert missing == [] and (site / "src" / "py.typed").exists()
    assert not (site / "tests").exists() and not (site / "benchmarks").exists()
