"""What the latent GPs are functions of: an object and its angle, the time in a video, or something learned.

Each module turns the auxiliary columns of a batch into inputs of the kernel, says which points share a function, and
knows where inducing points start.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from src.data.module import DataModule, Split
from src.data.moving_ball import FRAMES, MovingBall
from src.data.rotated_mnist import ANGLES, RotatedMNIST
from src.nets.mlp import mlp
from src.runs.errors import UserError


class Auxiliary(nn.Module):
    """Inputs of the latent GPs; here all points of the dataset share one function a channel.

    A model makes one with its `shape` and `latent_dim`, whether that matters or not.
    """

    size: int  # of an input
    grouped = False  # True: a function a video, and nothing to learn of one from another

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The inputs [b, P] of observations x [b, *shape]."""
        raise NotImplementedError

    def groups(self, aux: Tensor | None, size: int, device: torch.device) -> Tensor:
        """The rows [G, T] of the batch that share a function; -1 stands for no row."""
        return torch.arange(size, device=device).unsqueeze(0)

    def check(self, data: DataModule) -> None:
        """Refuse, with the reason, data that are not what this is for."""

    def initialise(self, data: DataModule) -> None:
        """Start from the data."""

    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """Where `count` inducing points [M, P] start; x are training observations in random order."""
        raise NotImplementedError


class ObjectAngle(Auxiliary):
    """An object, for which a vector is learned, and an angle: the views of rotated MNIST."""

    vectors: nn.Parameter  # [objects, object_dim]

    def __init__(self, num_objects: int = 400, object_dim: int = 8, **model: Any) -> None:
        super().__init__()
        self.size = object_dim + 1
        self.vectors = nn.Parameter(torch.zeros(num_objects, object_dim))

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The object's vector, then the angle."""
        objects, angles = split_columns(aux)
        return torch.cat([self.vectors[objects.long()], angles.to(self.vectors).unsqueeze(1)], 1)

    def check(self, data: DataModule) -> None:
        """The data are views of as many objects."""
        if not isinstance(data, RotatedMNIST):
            raise UserError("model.aux is an object and an angle, which only dataset=rotated_mnist has")
        if len(data.objects) != len(self.vectors):
            raise UserError(f"model.aux.num_objects={len(self.vectors)} must be the {len(data.objects)} of the dataset")

    @torch.no_grad()
    def initialise(self, data: DataModule) -> None:
        """The vectors start at the PCA scores of the objects."""
        assert isinstance(data, RotatedMNIST)
        self.vectors.copy_(data.object_scores(self.vectors.shape[1]))

    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """In turn at each of the 16 angles, near the vector of a random training object.

        As published: near means one normal number a point, times the bandwidth of a kernel density of each column.
        """
        rows = torch.randint(len(train), (count,))
        objects, _ = split_columns(train.aux)
        vectors = self.vectors.detach().cpu()[objects.long()]  # [N, object_dim]
        near = vectors[rows] + len(train) ** -0.2 * vectors.std(0) * torch.randn(count, 1)
        angles = 2 * math.pi / ANGLES * (torch.arange(count) % ANGLES)
        return torch.cat([near, angles.unsqueeze(1)], 1)


class VideoTime(Auxiliary):
    """The time in a video; every video is a draw of its own."""

    size = 1
    grouped = True

    def __init__(self, **model: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The time."""
        _, times = split_columns(aux)
        return times.to(x.dtype).unsqueeze(1)

    def groups(self, aux: Tensor | None, size: int, device: torch.device) -> Tensor:
        """The frames of each video, as many of them as are here."""
        videos, _ = split_columns(aux)
        _, counts = videos.unique(return_counts=True)
        frames = videos.argsort(stable=True).split(counts.tolist())
        return pad_sequence(frames, batch_first=True, padding_value=-1)

    def check(self, data: DataModule) -> None:
        """The data are videos, so that a batch holds whole ones."""
        if not isinstance(data, MovingBall):
            raise UserError("model.aux is the time in a video, which only dataset=moving_ball has")

    def inducing(self, count: int, train: Split, x: Tensor) -> Tensor:
        """Evenly over the video."""
        return torch.linspace(0, FRAMES - 1, count).unsqueeze(1)


class Learned(Auxiliary):
    """Inputs that a small net makes of the observation itself, for data that have none; as many as latent channels."""

    def __init__(self, shape: Sequence[int], latent_dim: int, hidden: Sequence[int] = (128,)) -> None:
        super().__init__()
        self.size = latent_dim
        self.net = mlp(shape, latent_dim, hidden)

    def check(self, data: DataModule) -> None:
        """Inputs are not to be learned where the data have them."""
        if data.train.aux is not None:
            raise UserError(
                f"model.aux=Learned would ignore the auxiliary inputs of {type(data).__name__}; conf/pair has settings "
                "for dataset=rotated_mnist and dataset=moving_ball"
            )

    def forward(self, x: Tensor, aux: Tensor | None) -> Tensor:
        """The net's answer; auxiliary columns play no part."""
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


def split_columns(aux: Tensor | None) -> tuple[Tensor, Tensor]:
    """The two auxiliary columns [b] each."""
    if aux is None:
        raise UserError("this model needs the auxiliary inputs of its points (aux), as its training data have them")
    first, second = aux.unbind(1)
    return first, second
