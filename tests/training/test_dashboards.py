"""Dashboards: what they are given, and that they cost a run nothing it needs."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from src.runs import files, identity, record
from src.training import experiment
from tests.configs import composed
from tests.training.test_experiment import QUICK, SAME, SMALL, interrupted, small_run

FIGURES = {"figures/decoded_grid", "figures/latent_map", "figures/reconstructions"}


def test_loggers_are_no_part_of_a_runs_identity() -> None:
    one, other = composed(), composed("logger=[tensorboard,wandb]", "logger.media_every=1", "logger.wandb.entity=us")
    assert identity.fingerprint(one) == identity.fingerprint(other)
    assert list(other["logger"]) == ["media_every", "tensorboard", "wandb"] and one["logger"] == {}


def test_tensorboard_shows_everything_and_changes_no_number(tmp_path: Path) -> None:
    """Of a model that gets ready for prediction each time it is drawn."""
    collapsed = ["model.bound=collapsed", "dataset.batch_size=full", "model.num_inducing=20", "trainer.max_epochs=2"]
    plain = files.read_json(small_run(tmp_path / "plain", *collapsed, model="bayesian_gplvm") / "metrics.json")
    shown = ["logger=tensorboard", "logger.media_every=1"]
    folder = small_run(tmp_path / "shown", *shown, *collapsed, model="bayesian_gplvm")
    metrics = files.read_json(folder / "metrics.json")
    assert {key: plain.get(key) for key in SAME} == {key: metrics.get(key) for key in SAME}
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    rows = [line.split(",") for line in (folder / "history.csv").read_text().split()]
    for name, *values in zip(*rows, strict=True):
        assert [event.step for event in events.Scalars(name)] == [0, 1]
        assert [event.value for event in events.Scalars(name)] == pytest.approx([float(v) for v in values], rel=1e-6)
    assert set(events.Tags()["images"]) == FIGURES
    assert all([event.step for event in events.Images(name)] == [0, 1] for name in FIGURES)
    assert b"latent_dim: 2" in events.Tensors("config/text_summary")[0].tensor_proto.string_val[0]
    assert events.Scalars("test/rmse")[0].value == pytest.approx(metrics["rmse"])


def test_a_resumed_run_leaves_one_curve_in_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path, "logger=tensorboard")
    [folder] = tmp_path.iterdir()
    (folder / "last.ckpt").unlink()  # as if killed after the row of the last epoch and before its checkpoint
    small_run(tmp_path, "logger=tensorboard")
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [0, 1, 2]


def test_a_dashboard_that_fails_is_disabled_and_the_run_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = identity.folder_name(composed(*SMALL, *QUICK), "sas", "digits")
    (tmp_path / name).mkdir()
    (tmp_path / name / "tensorboard").write_text("in the way")
    assert record.status(small_run(tmp_path, "logger=tensorboard")) == "done"
    assert "TensorBoard failed and is disabled" in capsys.readouterr().err
    assert "FileExistsError" in (tmp_path / name / "log.txt").read_text()
