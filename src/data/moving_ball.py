"""Moving ball: videos of a ball on a smooth random path, generated on the fly (Pearce, 2019)."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from src.data.batch import Batch, Split, split_of
from src.data.bits import Binary
from src.data.module import DataModule
from src.data.sampling import Batches, EpochSampler, ShuffledBatches
from src.runs.errors import UserError
from src.runs.randomness import stream

FRAMES, SIDE, RADIUS = 30, 32, 3
LENGTH_SCALE, JITTER = 2.0, 1e-5
TRAIN, TEST, FRESH = range(3)  # streams of randomness
TEST_SEED = 0  # the same test videos in every run


class MovingBall(DataModule):
    """Videos of 30 binary frames, [N, 1, 32, 32] as float32; the two coordinates of the ball are draws from a GP.

    A sample is one frame; `aux` holds its video and its time, 0 to 29. Batches consist of whole videos. Their frames
    are in random order, which models rely on; `batch.index.argsort()` restores [videos, 30].

    As published, each step trains on `batch_videos` new videos, a function of seed, epoch and step; an epoch has
    `steps_per_epoch` steps. `train` is a fixed sample of the same distribution for everything that needs stored data:
    the data mean, active sets, evaluation. New frames are not rows of `train`: their indices lie beyond its end.
    Models with free latents (one per data point) need `fresh=False`, which trains on `train` itself.

    Video numbers are unique: first the videos of `train`, then those of `test`, then those of a new batch.
    """

    aux_names = ("video", "time")
    group, group_size = "video", FRAMES
    binary = True

    def __init__(
        self,
        batch_videos: int = 35,
        steps_per_epoch: int = 250,
        num_train_videos: int = 350,
        num_test_videos: int = 35,
        fresh: bool = True,
        missing: Mapping[str, Any] | None = None,
        validation: float | None = None,
        binary: Binary | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_videos * FRAMES, missing=missing, validation=validation, binary=binary, seed=seed)
        if not 1 <= batch_videos <= num_train_videos:
            raise UserError(
                f"dataset.batch_videos={batch_videos} must lie between 1 and the {num_train_videos} training videos"
            )
        if steps_per_epoch < 1 or num_test_videos < 1:
            raise UserError("dataset.steps_per_epoch and dataset.num_test_videos must be at least 1")
        self.batch_videos, self.steps_per_epoch, self.fresh = batch_videos, steps_per_epoch, fresh
        self.num_train_videos, self.num_test_videos = num_train_videos, num_test_videos

    def load(self) -> tuple[Split, Split]:
        """Draw the stored videos."""
        train_paths = draw_paths(self.num_train_videos, np.random.default_rng(stream(self.seed, TRAIN)))
        test_paths = draw_paths(self.num_test_videos, np.random.default_rng(stream(TEST_SEED, TEST)))
        return record(train_paths, first_video=0), record(test_paths, first_video=self.num_train_videos)

    def train_dataloader(self) -> Batches:
        """Batches of whole videos, fresh or stored."""
        if self.fresh:
            videos = FreshVideos(self.batch_videos, self.num_train_videos + self.num_test_videos, self.seed)
            return Batches(videos, Positions(self.steps_per_epoch, *self.share()))
        return Batches(self.train, WholeVideos(len(self.train) // FRAMES, self.batch_videos, self.seed, *self.share()))


class FreshVideos(Dataset[Batch]):
    """Batches of videos that are generated on request, by epoch and step."""

    def __init__(self, num_videos: int, first_video: int, seed: int) -> None:
        self.num_videos, self.first_video, self.seed = num_videos, first_video, seed

    def __getitem__(self, position: tuple[int, int]) -> Batch:
        """The batch of an epoch and a step."""
        rng = np.random.default_rng(stream(self.seed, FRESH, *position))
        paths = draw_paths(self.num_videos, rng).flatten(0, 1)
        order = torch.from_numpy(rng.permutation(len(paths)))
        frames = render(paths[order])  # to shuffle them afterwards would cost as much again
        aux = video_and_time(self.num_videos, self.first_video)[order]
        return Batch(frames, order + self.first_video * FRAMES, aux=aux.float())


class Positions(EpochSampler):
    """The positions (epoch, step) of an epoch."""

    def steps(self) -> Sequence[tuple[int, int]]:
        """The positions of all steps."""
        return [(self.epoch, step) for step in range(self.num_steps * self.processes)]


class WholeVideos(ShuffledBatches):
    """Rows of whole stored videos in random order; `num_data` and `batch_size` count videos."""

    def steps(self) -> Sequence[Tensor]:
        """The shuffled frames of `batch_size` videos per step."""
        generator = torch.Generator().manual_seed(stream(self.seed, self.epoch, FRAMES))
        return [shuffled_frames(videos, generator) for videos in super().steps()]


def shuffled_frames(videos: Tensor, generator: torch.Generator) -> Tensor:
    """The rows of all frames of these videos, in random order."""
    rows = (videos[:, None] * FRAMES + torch.arange(FRAMES)).flatten()
    return rows[torch.randperm(len(rows), generator=generator)]


def record(paths: Tensor, first_video: int) -> Split:
    """The frames of consecutive videos, numbered from `first_video`."""
    aux = video_and_time(len(paths), first_video)
    return split_of(render(paths), aux=aux.float(), groups=aux[:, 0], latents=paths.flatten(0, 1))


def video_and_time(num_videos: int, first_video: int) -> Tensor:
    """The columns [videos * 30, 2] of consecutive videos."""
    return torch.cartesian_prod(torch.arange(first_video, first_video + num_videos), torch.arange(FRAMES))


def render(paths: Tensor) -> Tensor:
    """Frames [N, 1, 32, 32] of the N points of paths [..., 2] (down, across): 1 within 3 pixels of the ball, else 0.

    The origin of a path is the middle pixel (16, 16), its unit is 6.4 pixels; the ball may leave the frame.
    """
    centres = SIDE / 2 + SIDE / 5 * paths.flatten(0, -2)
    down, across = (torch.arange(SIDE) - centres[..., None]).square().unbind(1)  # [N, 32]
    return (down[:, :, None] + across[:, None, :] < RADIUS**2).float().unsqueeze(1)


def draw_paths(num_videos: int, rng: np.random.Generator) -> Tensor:
    """Paths [videos, 30, 2]: two independent GP draws per video."""
    return torch.from_numpy(path_cholesky() @ rng.standard_normal((num_videos, FRAMES, 2)))


@cache
def path_cholesky() -> np.ndarray:
    """The Cholesky factor [30, 30] of an RBF kernel with unit variance at times 0 to 29."""
    time = np.arange(FRAMES)
    covariance = np.exp(-0.5 * ((time[:, None] - time) / LENGTH_SCALE) ** 2)
    return np.linalg.cholesky(covariance + JITTER * np.eye(FRAMES))
