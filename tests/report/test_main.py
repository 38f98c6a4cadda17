"""The whole command."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from src.report.__main__ import main
from tests.report.handmade import write_explorer, write_run


def test_everything_is_written_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write_run(tmp_path, loss=[1.0, 0.5])
    write_explorer(write_run(tmp_path, "vae", active_set=None, loss=[1.0, 0.5]))
    write_run(tmp_path, "sas", status="failed")
    (tmp_path / "other").mkdir()
    main([str(tmp_path)])
    told = capsys.readouterr().out
    assert "3 runs: 2 done, 1 failed" in told and "skipped other: not the folder of a run" in told
    assert f"no latent map of {old.name}: no explorer.npz" in told
    report = tmp_path / "report"
    names = {str(path.relative_to(report)) for path in report.rglob("*.*")}
    figures = {f"figures/{name}.{kind}" for name in ("objective-mnist", "latents-mnist") for kind in ("pdf", "png")}
    assert names == {"tables.md", "tables.csv", "tables.tex", "index.html", "runs.json", *figures}
    main([str(tmp_path)])
    assert "3 runs" in capsys.readouterr().out  # its own folder is no run, and is not named


def test_only_what_is_asked_for_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", loss=[1.0, 0.5])
    main([str(tmp_path / "runs"), "--format", "md,csv", "--to", str(tmp_path / "there")])
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["tables.csv", "tables.md"]
    assert not (tmp_path / "runs" / "report").exists()


def test_runs_of_several_places_are_reported_together(tmp_path: Path) -> None:
    """A folder, a file and another folder; a run that is in several counts where it is finished first."""
    kept, here, there = (tmp_path / name for name in ("kept", "here", "there"))
    write_run(kept, seed=0, metrics={"rmse": 0.5})
    write_run(kept, seed=1, metrics={"rmse": 0.25})
    main([str(kept), "--format", "json"])
    write_run(here, seed=0, metrics={"rmse": 0.75})
    write_run(here, seed=1, status="failed")
    write_run(there, "vae", active_set=None)
    main([str(here), "--also", str(kept / "report" / "runs.json"), str(there), "--format", "json"])
    found = {entry["name"]: entry for entry in json.loads((here / "report" / "runs.json").read_text())}
    scores = {(entry["config"]["seed"], entry["metrics"].get("rmse")) for name, entry in found.items() if "sas" in name}
    assert scores == {(0, 0.75), (1, 0.25)} and len(found) == 3
    with pytest.raises(SystemExit, match="there is no folder"):
        main([str(here), "--also", str(tmp_path / "nowhere")])


@pytest.mark.parametrize("use", ["--compare", "--verify"])
def test_more_places_have_no_effect_on_other_uses(use: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["outputs", "--also", "there", use, "a", "b"])
    assert "--also has no effect on --compare and --verify" in capsys.readouterr().err


def test_the_explorer_shows_the_runs_that_are_asked_for(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    for folder in folders:
        write_explorer(folder)
    main([str(tmp_path), "--format", "html", "--explore", folders[1].name])
    page = (tmp_path / "report" / "index.html").read_text()
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert [explorer["run"] for explorer in data["explorers"]] == [folders[1].name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["."], "there is no run in ."),
        ([".", "--explore", "a"], "there is no run in ."),
        ([".", "--sweep", "none"], "Could not find 'sweep/none'"),
        ([".", "--sweep", "smoke", "outputs"], "takes overrides such as trainer.max_epochs=20: put outputs before"),
    ],
)
def test_what_a_person_can_mend_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert message in str(stop.value) and str(stop.value).startswith("Error: ")


def test_help_answers_without_heavy_imports() -> None:
    code = "import sys, src.report.__main__ as m\ntry: m.main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'matplotlib', 'numpy', 'hydra'} & set(sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0 and "usage: python -m src.report" in result.stdout, result.stderr


def test_lightning_is_not_loaded(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path, loss=[1.0, 0.5]))
    code = "import sys; from src.report.__main__ import main; main([sys.argv[1]]); "
    code += "assert not {'pytorch_lightning', 'torchmetrics', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True)


def processor_seconds(*arguments: str) -> float:
    """What a Python process takes; a busy machine inflates this less than the time on the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_200_records_take_less_than_10_seconds_beyond_imports(tmp_path: Path) -> None:
    """Tables, figures and page together; the imports, torch above all, do not depend on the number of runs."""
    loss = (0.2 + np.exp(-np.arange(300) / 50)).tolist()
    for i in range(200):
        model, dataset, size = ("sas", "bayesian_sas")[i % 2], ("mnist", "fmnist")[i // 2 % 2], 100 * 2 ** (i % 5)
        metrics = {"rmse": 0.2, "mae": 0.1, "nlpd": -0.1, "accuracy_1nn": 0.7}
        folder = write_run(tmp_path, model, dataset, i, size, metrics=metrics, loss=loss)
        if i < 4:
            write_explorer(folder, (1, 28, 28))
    imports = processor_seconds("-c", "import src.report.page, src.report.figures")
    assert processor_seconds("-m", "src.report", str(tmp_path)) - imports < 10
    assert (tmp_path / "report" / "index.html").stat().st_size < 8e6
