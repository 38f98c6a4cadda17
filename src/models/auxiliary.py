"""What the latent GPs are functions of: an object and its angle, the time in a video, or something learned.

Each module turns the auxiliary columns of a batch into inputs of the kernel, tells which points share a function, and
knows where inducing points start.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from src.data.batch import Split
from src.data.facts import Facts
from src.data.module import DataModule
from src.models.needs import NEEDS, Needs, aux_problem, require
from src.nets.mlp import mlp
from src.runs.errors import UserError

RANDOM_SCALE = 1.5  # the sd of random object vectors, as published


class Auxiliary(nn.Module, ABC):
    """Inputs of the latent GPs; all points of the dataset share one function per channel unless they are `grouped`."""

    size: int  # of an input
    grouped: ClassVar[bool] = False  # True: one function per group, and nothing to learn of one from another

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.facts = facts

    @abstractmethod
    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The inputs [B, P] of observations x [B, *shape]."""

    @abstractmethod
    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """Where `count` inducing points [M, P] start; x are training observations in random order."""

    def groups(self, aux: Tensor | None, size: int, device: torch.device) -> Tensor:
        """The rows [G, T] of a batch of `size` points that share a function; -1 stands for no row."""
        return torch.arange(size, device=device).unsqueeze(0)

    def initialise(self, data: DataModule) -> None:
        """Start from the data."""


class ObjectAngle(Auxiliary):
    """An object, for which a vector is learned, and an angle: the views of rotated MNIST.

    The vectors start at PCA scores of the objects' pictures, or at random.
    """

    vectors: nn.Parameter  # [objects, object_dim]

    def __init__(
        self,
        facts: Facts,
        latent_dim: int,
        object_dim: int = 8,
        num_angles: int = 16,
        start: Literal["pca", "random"] | None = None,
    ) -> None:
        super().__init__(facts)
        require(aux_problem("this model", NEEDS["ObjectAngle"], facts.aux))
        if start not in (None, "pca", "random"):
            raise UserError(f"model.aux.start={start} is neither pca nor random")
        self.size, self.num_angles, self.start = object_dim + 1, num_angles, start
        self.vectors = nn.Parameter(torch.zeros(facts.objects or 0, object_dim))

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The object's vector, then the angle."""
        objects, angles = columns(self.facts, aux, "object", "angle")
        return torch.cat([self.vectors[objects.long()], angles.to(self.vectors).unsqueeze(1)], 1)

    @torch.no_grad()
    def initialise(self, data: DataModule) -> None:
        """Start the vectors at the PCA scores of one picture of each object, or at random, by the seed of the data."""
        if self.start == "random":
            generator = torch.Generator().manual_seed(data.seed)
            self.vectors.copy_(RANDOM_SCALE * torch.randn(self.vectors.shape, generator=generator))
            return
        assert data.objects is not None
        self.vectors.copy_(principal_scores(data.objects, self.vectors.shape[1]))

    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """In turn at each of the angles, near the vector of a random training object.

        As published, near means one normal number per point, times the bandwidth of a kernel density of each column.
        """
        rows = torch.randint(len(train), (count,))
        (objects,) = columns(self.facts, train.aux, "object")
        vectors = self.vectors.detach().cpu()[objects.long()]  # [N, object_dim]
        near = vectors[rows] + len(train) ** -0.2 * vectors.std(0) * torch.randn(count, 1)
        angles = 2 * math.pi / self.num_angles * (torch.arange(count) % self.num_angles)
        return torch.cat([near, angles.unsqueeze(1)], 1)


class VideoTime(Auxiliary):
    """The time in a video; every video is a draw of its own.

    Inducing times start evenly over the whole video, or from the first to the last of the times `start`.
    """

    size = 1
    grouped: ClassVar[bool] = True

    def __init__(self, facts: Facts, latent_dim: int, start: Sequence[float] | None = None) -> None:
        super().__init__(facts)
        require(aux_problem("this model", NEEDS["VideoTime"], facts.aux))
        last = (facts.group_size or 1) - 1
        if start is not None and not (len(start) == 2 and 0 <= start[0] < start[1] <= last):
            raise UserError(f"model.aux.start={list(start)} must be two times between 0 and {last}, the earlier first")
        self.first, self.last = (0.0, float(last)) if start is None else start

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The time."""
        (times,) = columns(self.facts, aux, "time")
        return times.to(x.dtype).unsqueeze(1)

    def groups(self, aux: Tensor | None, size: int, device: torch.device) -> Tensor:
        """The frames of each video, as many of them as are here."""
        (videos,) = columns(self.facts, aux, "video")
        _, counts = videos.unique(return_counts=True)
        frames = videos.argsort(stable=True).split(counts.tolist())
        return pad_sequence(frames, batch_first=True, padding_value=-1)

    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """Evenly over the video, or over a part of it."""
        return torch.linspace(self.first, self.last, count).unsqueeze(1)


class Learned(Auxiliary):
    """Inputs that a small net makes of the observation itself, for data without any; as many as latent channels."""

    def __init__(self, facts: Facts, latent_dim: int, hidden: Sequence[int] = (128,)) -> None:
        super().__init__(facts)
        require(aux_problem("this model", NEEDS["Learned"], facts.aux))
        self.size = latent_dim
        self.net = mlp(facts.shape, latent_dim, hidden)

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The net's answer."""
        answer: Tensor = self.net(x)
        return answer

    @torch.no_grad()
    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """At the inputs of random observations, once the net's answers have mean 0 and variance 1."""
        answer, last = self.forward(x, None), self.net[-1]
        assert isinstance(last, nn.Linear)
        scale, mean = answer.std(0), answer.mean(0)
        last.weight.div_(scale.unsqueeze(1))
        last.bias.sub_(mean).div_(scale)
        return self.forward(x[:count], None)


def columns(facts: Facts, aux: Tensor | None, *names: str) -> list[Tensor]:
    """Auxiliary columns [B] by their names."""
    require(aux_problem("this model", Needs(aux=names), facts.aux))
    if aux is None:
        raise UserError(f"this model needs the auxiliary columns of its points: {' and '.join(facts.aux)}")
    return [aux[:, facts.aux.index(name)] for name in names]


def principal_scores(pictures: Tensor, dimensions: int) -> Tensor:
    """PCA scores [objects, dimensions] of bytes [objects, *shape], not whitened.

    Their signs are scikit-learn's: the largest loading of every component is positive.
    """
    from sklearn.decomposition import PCA

    pixels = pictures.flatten(1).numpy() / 255
    if dimensions > min(pixels.shape):
        raise UserError(
            f"model.aux.object_dim={dimensions} exceeds the {min(pixels.shape)} principal components of the objects"
        )
    return torch.from_numpy(PCA(dimensions, svd_solver="full").fit_transform(pixels)).float()
