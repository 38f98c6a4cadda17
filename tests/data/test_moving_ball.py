"""Moving ball: the paths have the GP's covariance, the pixels are the ball's, and batches are whole videos."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor

from src.data.batch import Batch
from src.data.module import DataModule
from src.data.moving_ball import FRAMES, MovingBall, Positions, WholeVideos, draw_paths, render
from src.runs.errors import UserError
from src.runs.specs import make
from tests.configs import composed


def loaded(**options: Any) -> MovingBall:
    small = {"batch_videos": 3, "steps_per_epoch": 4, "num_train_videos": 10, "num_test_videos": 2}
    data = MovingBall(**{**small, **options})
    data.setup()
    return data


def epoch_batches(data: DataModule, epoch: int) -> list[Batch]:
    loader = data.train_dataloader()
    assert isinstance(loader.sampler, Positions | WholeVideos)
    loader.sampler.set_epoch(epoch)
    return list(loader)


def by_video(batch: Batch) -> Batch:
    order = batch.index.argsort()
    assert batch.aux is not None
    return Batch(batch.x[order], batch.index[order], aux=batch.aux[order])


def video_aux(first: int, last: int) -> Tensor:
    return torch.tensor([[video, time] for video in range(first, last) for time in range(30)], dtype=torch.float32)


def test_rendering_is_a_disc_of_radius_3_about_the_path() -> None:
    paths = torch.cat([draw_paths(1, np.random.default_rng(0)), torch.full((1, 30, 2), 3.0, dtype=torch.float64)])
    frames = render(paths)
    expected = np.zeros((60, 1, 32, 32), np.float32)
    for frame, (row, column) in enumerate(paths.flatten(0, 1).tolist()):
        for i in range(32):
            for j in range(32):
                expected[frame, 0, i, j] = (i - 16 - 6.4 * row) ** 2 + (j - 16 - 6.4 * column) ** 2 < 9
    assert frames.dtype == torch.float32 and np.array_equal(frames, expected)
    assert frames[0].sum() > 0 and frames[-1].sum() == 0  # the ball of the second video is beyond the corner


def test_a_ball_at_the_origin_is_five_by_five_pixels() -> None:
    """Its corners are √8 from the centre; pixels at a distance of exactly 3 are no part of it."""
    frame = render(torch.zeros(1, 30, 2, dtype=torch.float64))[0, 0]
    assert frame.sum() == 25 and frame[14:19, 14:19].sum() == 25


def test_paths_have_the_covariance_of_the_gp() -> None:
    paths = draw_paths(40_000, np.random.default_rng(0)).numpy().transpose(0, 2, 1)  # [videos, 2, 30]
    time = np.arange(30)
    expected = np.kron(np.eye(2), np.exp(-((time[:, None] - time) ** 2) / (2 * 2.0**2)))
    values = paths.reshape(len(paths), 60)
    np.testing.assert_allclose(values.mean(0), 0, atol=0.025)  # five standard errors
    np.testing.assert_allclose(values.T @ values / len(values), expected, atol=0.036)


def test_the_splits_are_frames_with_video_and_time() -> None:
    data = loaded()
    assert data.facts.shape == (1, 32, 32) and len(data.train) == 300 and len(data.test) == 60 and data.batch_size == 90
    assert data.train.aux is not None and torch.equal(data.train.aux, video_aux(0, 10))
    assert data.test.aux is not None and torch.equal(data.test.aux, video_aux(10, 12))
    assert data.train.y is None and data.test.y is None
    assert data.train.all().x.unique().tolist() == [0, 1]


def test_videos_are_groups_that_stay_whole() -> None:
    data = loaded()
    for split, first in ((data.train, 0), (data.test, 10)):
        assert split.groups is not None
        assert split.groups.tolist() == [first + row // 30 for row in range(len(split))]
    assert [len(chunk) for chunk in data.train.chunks(100)] == [90, 90, 90, 30]


def test_the_true_paths_of_the_test_videos_are_kept() -> None:
    data = loaded()
    paths, training_paths = data.test.latents, data.train.latents
    assert paths is not None and training_paths is not None and paths.shape == (60, 2)
    assert torch.equal(render(paths.unflatten(0, (2, 30))), data.test.all().x)
    assert torch.equal(render(training_paths.unflatten(0, (10, 30))), data.train.all().x)


def test_only_the_test_videos_are_the_same_for_all_seeds() -> None:
    data, again, other = loaded(seed=1), loaded(seed=1), loaded(seed=2)
    training, same_training, other_training = (d.train.all().x for d in (data, again, other))
    assert torch.equal(training, same_training) and not torch.equal(training, other_training)
    assert torch.equal(data.test.all().x, other.test.all().x)
    assert data.test.latents is not None and other.test.latents is not None
    assert torch.equal(data.test.latents, other.test.latents)
    first, same, different = (epoch_batches(d, 0)[0] for d in (data, again, other))
    assert torch.equal(first.x, same.x) and not torch.equal(by_video(first).x, by_video(different).x)


def test_test_and_training_videos_differ_for_the_seed_of_the_test_videos() -> None:
    data = loaded(seed=0)
    assert not torch.equal(data.train.all().x[:60], data.test.all().x)


def test_every_step_has_fresh_videos_that_are_a_function_of_seed_epoch_and_step() -> None:
    data = loaded()
    torch.manual_seed(123)  # the global generator has no part in it
    epochs = {epoch: epoch_batches(data, epoch) for epoch in (0, 1, 7)}
    videos = torch.cat([by_video(b).x for batches in epochs.values() for b in batches]).reshape(3 * 4 * 3, -1)
    assert len(torch.cat([videos, data.train.all().x.reshape(10, -1)]).unique(dim=0)) == 46
    for epoch, batches in epochs.items():
        for batch, again in zip(batches, epoch_batches(loaded(), epoch), strict=True):
            assert torch.equal(batch.x, again.x) and torch.equal(batch.index, again.index)


def test_fresh_batches_are_whole_videos_beyond_the_stored_ones() -> None:
    batches = epoch_batches(loaded(), 0)
    assert len(batches) == 4
    for batch in batches:
        ordered = by_video(batch)
        assert ordered.aux is not None and torch.equal(ordered.aux, video_aux(12, 15))
        assert torch.equal(ordered.index, torch.arange(12 * 30, 15 * 30)) and batch.y is None


def test_stored_batches_are_whole_videos_of_the_training_split() -> None:
    data = loaded(fresh=False)
    batches = epoch_batches(data, 0)
    assert len(batches) == len(data.train_dataloader()) == 3
    for batch in batches:
        ordered = by_video(batch)
        assert batch.aux is not None and data.train.aux is not None and ordered.aux is not None
        assert torch.equal(batch.x, data.train.all().x[batch.index]) and torch.equal(
            batch.aux, data.train.aux[batch.index]
        )
        videos, times = ordered.aux.unflatten(0, (3, 30)).unbind(-1)
        assert (videos == videos[:, :1]).all() and (times == torch.arange(30)).all()
    assert len({row for batch in batches for row in batch.index.tolist()}) == 270


def test_the_order_of_stored_videos_is_a_function_of_seed_and_epoch() -> None:
    def orders(seed: int) -> list[list[int]]:
        data = loaded(fresh=False, seed=seed)
        return [torch.cat([b.index for b in epoch_batches(data, epoch)]).tolist() for epoch in range(3)]

    first, again, other = orders(1), orders(1), orders(2)
    assert first == again and len({tuple(order) for order in [*first, *other]}) == 6


@pytest.mark.parametrize("fresh", [True, False])
def test_the_frames_of_a_batch_are_in_random_order(fresh: bool) -> None:
    """Active sets are the first points of a batch, and must not be the first videos."""
    data = loaded(fresh=fresh, batch_videos=10)
    batch = epoch_batches(data, 0)[0]
    assert batch.aux is not None
    assert len(batch.aux[:60, 0].unique()) == 10


class Recorder(LightningModule):
    """Keeps the batches of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: dict[int, list[Batch]] = {}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.seen.setdefault(self.current_epoch, []).append(batch)
        return self.weight * batch.x.mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(max_epochs: int) -> Trainer:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    return Trainer(max_epochs=max_epochs, accelerator="cpu", logger=False, enable_checkpointing=False, **quiet)


@pytest.mark.parametrize("fresh", [True, False])
def test_an_epoch_has_its_batches_also_after_an_interruption(fresh: bool, tmp_path: Path) -> None:
    data, model, resumed = loaded(fresh=fresh), Recorder(), Recorder()
    first = trainer(max_epochs=2)
    first.fit(model, datamodule=data)
    first.save_checkpoint(tmp_path / "last.ckpt")
    trainer(max_epochs=4).fit(resumed, datamodule=loaded(fresh=fresh), ckpt_path=tmp_path / "last.ckpt")
    assert list(model.seen) == [0, 1] and list(resumed.seen) == [2, 3]
    for epoch, batches in {**model.seen, **resumed.seen}.items():
        for seen, expected in zip(batches, epoch_batches(data, epoch), strict=True):
            assert torch.equal(seen.x, expected.x) and torch.equal(seen.index, expected.index)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"batch_videos": 0}, "batch_videos=0"),
        ({"batch_videos": 11}, "batch_videos=11"),
        ({"steps_per_epoch": 0}, "steps_per_epoch"),
        ({"num_test_videos": 0}, "num_test_videos"),
    ],
)
def test_what_cannot_be_filled_is_refused(options: dict[str, int], name: str) -> None:
    with pytest.raises(UserError, match=f"dataset.{name}"):
        loaded(**options)


def test_the_config_is_the_published_setting() -> None:
    config = composed("dataset=moving_ball")
    data: MovingBall = make(config["dataset"])
    assert data.fresh and data.batch_videos == 35 and data.num_test_videos == 35
    assert data.steps_per_epoch * config["trainer"]["max_epochs"] == 25_000


def test_whole_videos_are_held_out_for_validation() -> None:
    data = MovingBall(batch_videos=2, num_train_videos=10, num_test_videos=1, fresh=False, validation=0.2)
    data.setup()
    assert data.validation is not None and data.validation.groups is not None and data.train.groups is not None
    assert len(data.validation) == 2 * FRAMES and len(data.validation.groups.unique()) == 2
    batches = list(data.train_dataloader())
    assert len(batches) == 4 and sorted(torch.cat([b.index for b in batches]).tolist()) == list(range(8 * FRAMES))
    for batch in batches:
        assert len(data.train.groups[batch.index].unique()) == 2
