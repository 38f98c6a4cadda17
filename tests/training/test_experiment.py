"""Whole runs: what they leave on disk, what happens when they are repeated, and what is refused before any work."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from src.evaluate import evaluate_again
from src.evaluation.latent_space import LatentSpace
from src.models.bayesian_sas import BayesianSAS
from src.runs import files, identity, record
from src.runs.errors import NumericalError, UserError
from src.training import experiment
from src.training.experiment import run
from tests.configs import composed

ROOT = Path(__file__).parents[2]
SMALL = [
    "dataset.max_train=200",
    "dataset.max_test=50",
    "dataset.batch_size=100",
    "active_set.size=20",
    "trainer.max_epochs=3",
]
SAME = ("rmse", "mae", "nlpd", "rmse_c60", "nlpd_mixture", "accuracy_1nn", "objective", "epochs")  # number for number
QUICK = ["evaluation.condition_on=60", "evaluation.active_sets=2"]


def small_run(outputs: Path, *overrides: str, model: str = "sas", dataset: str = "digits") -> Path:
    """Run a few epochs and return the run's folder."""
    config = composed(f"model={model}", f"dataset={dataset}", *SMALL, *QUICK, f"paths.outputs={outputs}", *overrides)
    run(config, model, dataset)
    return outputs / identity.folder_name(config, model, dataset)


@pytest.mark.parametrize("model", ["sas", "bayesian_sas"])
def test_a_run_leaves_everything_a_person_needs(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small_run(tmp_path, model=model)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert {"rmse", "mae", "nlpd", "accuracy_1nn", "seconds_per_epoch", "peak_memory_mb", "epochs"} <= metrics.keys()
    assert metrics["epochs"] == 3 and all(np.isfinite(value) for value in metrics.values())
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    parts = ["active", "rest"] + (["kl"] if model == "bayesian_sas" else [])
    for row in rows:
        assert float(row["loss"]) == pytest.approx(-sum(float(row[part]) for part in parts), abs=1e-5)
    assert all(
        (folder / "figures" / f"{name}.png").stat().st_size > 5000
        for name in ("latent_map", "reconstructions", "decoded_grid")
    )
    record = files.read_json(folder / "record.json")
    assert record["status"] == "done" and record["versions"]["torch"] == torch.__version__.split("+")[0]
    shown = capsys.readouterr().out
    assert str(folder) in shown and "published" not in shown


def test_a_finished_run_is_shown_not_repeated_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small_run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    small_run(tmp_path)
    assert "This run is finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    first = files.read_json(folder / "metrics.json")
    small_run(tmp_path, "rerun=true")
    again = files.read_json(folder / "metrics.json")
    assert {key: first[key] for key in SAME} == {key: again[key] for key in SAME}
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(folder.name)]) == 2


@pytest.mark.parametrize("where", ["in the second epoch", "in the evaluation"])
def test_an_interrupted_run_ends_with_the_same_numbers(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files.read_json(small_run(tmp_path / "whole", model="bayesian_sas") / "metrics.json")
    with monkeypatch.context() as patch:
        if where == "in the evaluation":
            patch.setattr(experiment, "evaluate", interrupted)
        else:
            patch.setattr(BayesianSAS, "on_train_batch_end", interrupted_at_step_3)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            small_run(tmp_path / "broken", model="bayesian_sas")
    folder = next((tmp_path / "broken").iterdir())
    assert record.status(folder) == "interrupted"
    broken = files.read_json(small_run(tmp_path / "broken", model="bayesian_sas") / "metrics.json")
    assert {key: whole[key] for key in SAME} == {key: broken[key] for key in SAME}
    first, second = (next(tmp_path.glob(f"{which}/*/history.csv")) for which in ("whole", "broken"))
    assert traced(first) == traced(second)


def traced(path: Path) -> list[dict[str, str]]:
    """The columns of a history that no clock has a part in."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(path.read_text().splitlines())]


def test_a_run_of_code_that_traced_nothing_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first epochs have no values in the new columns."""
    with monkeypatch.context() as patch:
        patch.setattr(experiment.registry, "trace", lambda subject: {})
        patch.setattr(BayesianSAS, "on_train_batch_end", interrupted_at_step_3)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            small_run(tmp_path, model="bayesian_sas")
    rows = list(csv.DictReader((small_run(tmp_path, model="bayesian_sas") / "history.csv").read_text().splitlines()))
    assert [np.isfinite(float(row["watched_noise"])) for row in rows] == [False, True, True]
    assert all(np.isfinite(float(row["loss"])) for row in rows)


def test_what_went_wrong_is_noted_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After three epochs of a small model, the noise is still where it started."""
    folder = small_run(tmp_path)
    (note,) = files.read_json(folder / "record.json")["notes"]
    assert note.startswith("the noise variance is 1.")
    assert f"note: {note}" in capsys.readouterr().out
    small_run(tmp_path)  # which shows the finished run
    assert f"note: {note}" in capsys.readouterr().out


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def interrupted_at_step_3(model: BayesianSAS, *_: object) -> None:
    if model.global_step == 3:
        raise KeyboardInterrupt


def test_a_figure_that_cannot_be_drawn_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LatentSpace, "figures", lambda *_: 1 / 0)
        folder = small_run(tmp_path)
    assert record.status(folder) == "done" and (folder / "explorer.npz").exists()
    assert "A figure of the task latent_space could not be drawn (ZeroDivisionError" in capsys.readouterr().out
    assert "ZeroDivisionError" in (folder / "log.txt").read_text()
    assert (folder / "figures" / "reconstructions.png").exists() and not (
        folder / "figures" / "latent_map.png"
    ).exists()


def test_a_run_says_where_it_is_and_whether_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(experiment, "evaluate", interrupted)
        small_run(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert f"{folder}: a new run" in capsys.readouterr().out
    small_run(tmp_path)
    starts = files.read_json(folder / "record.json")["starts"]
    assert f"{folder}: resumes in epoch" in capsys.readouterr().out
    assert [start["threads"] for start in starts] == [torch.get_num_threads()] * 2


def test_a_finished_run_of_other_code_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run(tmp_path)
    small_run(tmp_path)
    assert "have changed since" not in capsys.readouterr().out
    monkeypatch.setattr(experiment.code, "digest", lambda: "edited")
    small_run(tmp_path)
    assert "The code or its configs have changed since" in capsys.readouterr().out


def test_a_failed_run_keeps_its_traceback_and_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(experiment.registry, "draw", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small_run(tmp_path)
    folder = next(path for path in tmp_path.iterdir())
    assert record.status(folder) == "failed"
    assert "ZeroDivisionError" in (folder / "log.txt").read_text()
    assert record.status(small_run(tmp_path)) == "done"


def test_the_geometry_of_a_finished_run_is_scored_and_drawn_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("src.evaluation.geometry.ASKED", 10)
    folder = small_run(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    found = evaluate_again(folder, ["evaluation.geometry=true"])
    assert 0 < found["geodesic_energy"] <= 1 and {"geodesic_1nn", "euclidean_1nn"} <= found.keys()
    (pdf, png) = sorted((folder / "evaluations").glob("*/*"))
    assert png.parent.with_suffix(".json").name == f"{folder.name[-8:]}-geometry.json"  # so that the report adds it
    assert (pdf.name, png.name) == ("geodesics.pdf", "geodesics.png") and f"figure: {png}" in capsys.readouterr().out
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_evaluate_again_with_the_same_and_other_settings(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    own = files.read_json(folder / "metrics.json")
    again = evaluate_again(folder, [])
    assert {key: own[key] for key in again} == pytest.approx(again)
    assert "rmse_c90" in evaluate_again(folder, ["evaluation.condition_on=90"])
    assert len(list((folder / "evaluations").iterdir())) == 2
    with pytest.raises(UserError, match="condition_o"):
        evaluate_again(folder, ["evaluation.condition_o=90"])
    assert not list((folder / "evaluations").glob("*/"))
    with pytest.raises(UserError, match="not the folder of a finished run"):
        evaluate_again(tmp_path, [])


def test_the_table_at_the_end_has_the_published_numbers_beside_it(tmp_path: Path) -> None:
    """Those of the run's own cell of the papers' tables, with the note that their NLPD is another quantity."""
    config = composed("model=bayesian_sas", "dataset=mnist", "active_set=a400")
    folder = tmp_path / identity.folder_name(config, "bayesian_sas", "mnist")
    with record.keep(folder, config):
        files.write_json(
            folder / "metrics.json", {"rmse": 0.2, "mae": 0.1, "nlpd": -0.2, "accuracy_1nn": 0.7, "epochs": 3}
        )
    lines = [
        " ".join(line.split()) for line in experiment.summary(folder, config, "bayesian_sas", "mnist").splitlines()
    ]
    assert "published 0.199 ± 0.002 0.096 ± 0.001 0.217 ± 0.002" in lines
    assert "accuracy_1nn 0.7 published 0.63 ± 0.022" in lines
    assert sum(line.startswith("published: Moreno-Muñoz") for line in lines) == 2
    assert any(line.startswith("nlpd: ") and "absolute value" in line for line in lines)


def test_the_exact_evidence_of_a_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of one that is older than the setting; each number of points has its own file, and the record stays."""
    folder = small_run(tmp_path)
    config = OmegaConf.load(folder / "config.yaml")
    for name in ("exact_evidence", "evidence_points", "evidence_precision"):
        del config.evaluation[name]
    OmegaConf.save(config, folder / "config.yaml")
    for points in (80, 120):
        evaluate_again(folder, ["evaluation.exact_evidence=true", f"evaluation.evidence_points={points}"])
    assert "sas_estimate" in capsys.readouterr().out
    kept = [files.read_json(path)["metrics"] for path in sorted((folder / "evaluations").iterdir())]
    assert sorted(metrics["evidence_points"] for metrics in kept) == [80, 120]
    assert all(metrics.keys() >= {"exact_evidence", "sas_estimate", "sas_estimate_sd", "rmse"} for metrics in kept)
    assert "exact_evidence" not in files.read_json(folder / "metrics.json")
    with pytest.raises(UserError, match="must exceed the 20 active points"):
        evaluate_again(folder, ["evaluation.exact_evidence=true", "evaluation.evidence_points=20"])


def test_hidden_values_and_the_amortisation_gap_of_a_finished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that is older than both settings; the gap adds to the run's own scores and changes none."""
    folder = small_run(tmp_path, model="bayesian_sas")
    config = OmegaConf.load(folder / "config.yaml")
    del config.dataset.missing, config.evaluation.refine
    OmegaConf.save(config, folder / "config.yaml")
    own, refined = files.read_json(folder / "metrics.json"), evaluate_again(folder, ["evaluation.refine=true"])
    assert {key: own[key] for key in refined if key in own} == pytest.approx(
        {k: refined[k] for k in refined if k in own}
    )
    assert refined["amortisation_gap_test"] > 0 and "amortisation_gap_test" not in own
    assert (folder / "evaluations" / f"{folder.name[-8:]}-refined.json").exists()
    hidden = evaluate_again(folder, ["dataset.missing.fraction=0.5"])
    assert {"imputation_rmse_median_c60_sd", "imputation_nlpd_mixture", "nearest_imputation_mae"} <= hidden.keys()
    assert "mean imputation" in capsys.readouterr().out
    assert files.read_json(folder / "metrics.json") == own
    with pytest.raises(UserError, match="must lie above 0"):
        evaluate_again(folder, ["dataset.missing.fraction=2"])


def test_a_run_with_hidden_values_leaves_what_it_filled_in(tmp_path: Path) -> None:
    folder = small_run(tmp_path, "dataset.missing.fraction=0.4", "dataset.missing.split=both", model="vae")
    metrics = files.read_json(folder / "metrics.json")
    assert all(np.isfinite(value) for value in metrics.values()) and "imputation_nlpd" in metrics
    assert (folder / "figures" / "imputation.png").stat().st_size > 5000
    with np.load(folder / "explorer.npz") as arrays:
        assert arrays["truth"].shape == arrays["images"].shape and len(arrays["hidden_error"]) == 50


def test_evidence_that_a_model_does_not_have_is_refused_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a GP decoder"):
        small_run(tmp_path, "evaluation.exact_evidence=true", model="vae")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["sas", "bayesian_sas"])
@pytest.mark.parametrize(
    "overrides",
    [
        ["kernel=matern52", "encoder=conv"],
        ["kernel=rational_quadratic", "optimizer=adamw"],
        ["kernel=arc_cosine", "model.latent_dim=5"],
        ["kernel=rbf_ard", "model.amortised=false", "trainer.precision=64-true"],
        ["active_set=random", "active_set.size=random", "dataset.batch_size=full"],
    ],
    ids=lambda overrides: "-".join(overrides),
)
def test_combinations_train_and_evaluate(model: str, overrides: list[str], tmp_path: Path) -> None:
    assert (
        record.status(small_run(tmp_path, "trainer=debug", "trainer.max_epochs=2", *overrides, model=model)) == "done"
    )


@pytest.mark.parametrize("dataset", ["mnist", "fmnist"])
def test_real_images(dataset: str, data_root: Path, data_file, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    data_file("MNIST/raw")
    folder = small_run(tmp_path, f"paths.data={data_root}", dataset=dataset)
    assert files.read_json(folder / "metrics.json")["rmse"] < 0.4


def test_a_users_own_array(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    z = generator.normal(size=(300, 2))
    np.save(tmp_path / "x.npy", np.sin(z @ generator.normal(size=(2, 7))).astype(np.float32))
    np.save(tmp_path / "y.npy", (z[:, 0] > 0).astype(int))
    own = [f"dataset.train={tmp_path / 'x.npy'}", f"dataset.train_labels={tmp_path / 'y.npy'}", "dataset.max_test=30"]
    folder = small_run(tmp_path / "out", *own, dataset="array")
    assert files.read_json(folder / "metrics.json")["accuracy_1nn"] > 0.6


REFUSED = {
    "the active set is as large as the batch": (["active_set.size=100"], "smaller than the batch of 100"),
    "an active set of nothing": (["active_set.size=0"], "at least 1"),
    "the batch is larger than the data": (["dataset.batch_size=201"], "between 1 and the 200 training points"),
    "random active sets with mini-batches": (["active_set.size=random"], "needs all 200 points in every batch"),
    "a GPU where there is none": (["trainer.accelerator=gpu"], "gpu|GPU|CUDA"),
    "an unknown kernel": (["kernel._target_=gpytorch.kernels.NoKernel"], "NoKernel"),
    "a q(z) that does not fit": (["+model.posterior=full"], "does not fit SAS"),
    "no array": (["dataset=array"], "dataset.train"),
    "more data than there are": (["dataset.max_train=9999"], "max_train=9999"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    overrides, sentence = REFUSED[name]
    if name == "a GPU where there is none" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match=sentence):
        run(composed(*SMALL, f"paths.outputs={tmp_path / 'out'}", *overrides), "sas", "digits")
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("model", ["sas", "gplvm", "bayesian_gplvm", "vae"])
def test_free_latents_of_fresh_videos_are_refused(model: str, tmp_path: Path) -> None:
    config = composed(f"model={model}", "dataset=moving_ball", "model.amortised=false", f"paths.outputs={tmp_path}")
    with pytest.raises(UserError, match=r"set dataset\.fresh=false"):
        run(config, model, "moving_ball")
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write to paths.outputs=.*file"):
        small_run(tmp_path / "file" / "outputs")


def test_a_loss_that_is_not_finite_stops_with_the_hyperparameters(tmp_path: Path) -> None:
    array = np.full((250, 4), 1e30, dtype=np.float32) * np.random.default_rng(0).normal(size=(250, 4)).astype(
        np.float32
    )
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(NumericalError, match=r"hyperparameters: .*lengthscale = \[0.69.*noise = \["):
        small_run(tmp_path / "out", f"dataset.train={tmp_path / 'x.npy'}", "dataset.max_test=null", dataset="array")


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}  # these sources, wherever it runs
    return subprocess.run([sys.executable, "-m", *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def test_two_processes_train_one_run_to_the_same_quality(tmp_path: Path) -> None:
    """Each with its own batches and active sets; one folder, one record."""
    common = [*QUICK, "trainer.max_epochs=25", "trainer.accelerator=cpu", "active_set.size=100"]
    config = composed(*common, "dataset.batch_size=512", f"paths.outputs={tmp_path / 'one'}")
    one = run(config, "sas", "digits")
    two = ["dataset.batch_size=256", "trainer.devices=2", "trainer.strategy=ddp"]
    result = command("src.train", *common, *two, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (folder,) = (tmp_path / "outputs").iterdir()
    assert record.status(folder) == "done" and result.stdout.count("run folder:") == 1
    assert files.read_json(folder / "metrics.json")["rmse"] == pytest.approx(one["rmse"], rel=0.03)
    assert len((folder / "history.csv").read_text().splitlines()) == 26


def test_a_sweep_in_one_process_does_not_divide_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(record.HOME, str(tmp_path))
    with pytest.raises(UserError, match=r"set trainer\.devices=1"):
        small_run(tmp_path, "trainer.devices=2", "trainer.accelerator=cpu")


def test_more_processes_than_cores_are_refused(tmp_path: Path) -> None:
    """They would take turns, and wait for each other after every step."""
    with pytest.raises(UserError, match=r"trainer\.devices=1000 would start as many processes on \d+ cores"):
        small_run(tmp_path, "trainer.devices=1000", "trainer.accelerator=cpu")


def test_the_command_line_from_another_folder(tmp_path: Path) -> None:
    """Two runs of a sweep, then a refusal that is one sentence without a traceback."""
    sweep = command("src.train", "-m", *SMALL, *QUICK, "seed=0,1", "trainer.max_epochs=1", cwd=tmp_path)
    assert sweep.returncode == 0, sweep.stderr
    assert sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "outputs").glob("sas-*")) == [
        "sas-digits-a20-s0",
        "sas-digits-a20-s1",
    ]
    assert "epoch 1/1" in sweep.stderr and "run folder: outputs" in sweep.stdout
    refusal = command("src.train", "active_set.size=600", cwd=tmp_path)
    assert refusal.returncode == 1
    assert "Error: active_set.size=600 must be" in refusal.stderr and "Traceback" not in refusal.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process has the peak of its own in any case")
def test_the_peak_memory_is_not_that_of_the_process_that_started_this_one() -> None:
    child = "from src.evaluation.cost import peak_memory; print(peak_memory())"
    parent = (
        "import numpy, subprocess, sys; held = numpy.ones(2**28); subprocess.run([sys.executable, '-c', sys.argv[1]])"
    )
    told = subprocess.run([sys.executable, "-c", parent, child], check=True, capture_output=True, text=True).stdout
    assert 100 < float(told) < 2000


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_watching_adds_the_best_epoch_and_changes_no_other_number(precision: str, tmp_path: Path) -> None:
    """Every second epoch and the last; the length scale is traced in every epoch. Scores are of unrounded layers."""
    sizes = [f"dataset.{name}={size}" for name, size in (("batch_videos", 2), ("steps_per_epoch", 2))]
    sizes += ["dataset.num_train_videos=3", "dataset.num_test_videos=2", "trainer.max_epochs=3"]
    sizes += [f"trainer.precision={precision}"]
    command = ["model=gp_vae", "dataset=moving_ball", *sizes, f"paths.outputs={tmp_path}", "logger=csv"]
    plain, watched = (
        run(composed(*command, *more), "gp_vae", "moving_ball") for more in ([], ["evaluation.watch_every=2"])
    )
    measured = {"seconds_per_epoch", "peak_memory_mb"}
    assert {k: watched[k] for k in plain if k not in measured} == {k: plain[k] for k in plain if k not in measured}
    (folder,) = (path.parent for path in tmp_path.glob("*/history.csv") if "watched_path" in path.read_text())
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    scores = [float(row["watched_path_rmse"]) for row in rows]
    assert [np.isfinite(score) for score in scores] == [False, True, True]
    assert scores[2] == watched["path_rmse"] and watched["path_rmse_best_epoch"] == min(scores[1:])
    assert np.isfinite([float(row["watched_lengthscale"]) for row in rows]).all()


def test_watching_predictions_changes_no_other_number(tmp_path: Path) -> None:
    """Scores given random active sets draw random numbers; the training has its own."""
    plain, watched = (
        files.read_json(small_run(tmp_path, *more, model="sas_classifier") / "metrics.json")
        for more in ([], ["evaluation.watch_every=1"])
    )
    measured = {"seconds_per_epoch", "peak_memory_mb"}
    assert {k: watched[k] for k in plain if k not in measured} == {k: plain[k] for k in plain if k not in measured}
    assert watched.keys() - plain.keys() == {"error_rate_best_epoch", "target_nlp_best_epoch"}
