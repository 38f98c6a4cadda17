"""uv and pip install the same versions, and the workflow tests every Python that we name."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def constraints() -> list[str]:
    """What pip is held to."""
    return [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def test_uv_is_held_to_the_versions_that_pip_is_held_to() -> None:
    """pip does not read pyproject.toml for them, nor uv another file."""
    settings = (ROOT / "pyproject.toml").read_text().partition("[tool.uv]")[2].partition("\n]")[0]
    assert len(constraints()) > 40
    assert [line.strip()[1:-2] for line in settings.splitlines()[2:]] == constraints()


def test_the_workflow_tests_every_python_of_the_classifiers() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    classifiers = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert workflow["jobs"]["pip"]["strategy"]["matrix"]["python"] == classifiers
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert any(step.get("run", "").startswith("make test ") for step in steps)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
