"""Commands of the project as a person types them, in processes of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from src.runs.code import PACKAGES

ROOT = Path(__file__).parents[2]
TINY = [
    "dataset.max_train=120",
    "dataset.max_test=10",
    "dataset.batch_size=60",
    "active_set.size=10",
    "evaluation.active_sets=1",
    "evaluation.condition_on=20",
    "trainer.max_epochs=1",
]


def command(module: str, *arguments: str, cwd: Path, code: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=cwd, env=environment(code), capture_output=True, text=True
    )


def environment(code: Path = ROOT) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(code)}


def copied_code(folder: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "code"
