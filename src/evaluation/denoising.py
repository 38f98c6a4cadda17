"""Denoising: white noise on some values of test points, which a model removes by encoding and decoding them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from src.data.batch import Batch, Split, split_of
from src.evaluation.task import Metric, Scores, Settings, Subject, Task, decoded, latent_means
from src.models.capabilities import HasLatents
from src.runs.errors import UserError
from src.runs.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES, PIXELS = 6, 50  # noisy test images, and noisy pixels of each


class Denoising(Task):
    """RMSE of noisy points, encoded as unseen ones and decoded, to the clean points; over all of their values.

    As Meng et al. do it: one random column of each row of a table, or 50 random pixels of six random images, clipped to
    0..1. `evaluation.denoising` is the sd of the noise. Points and noise are the same in every run.
    """

    name = "denoising"
    order = 4
    metrics = {  # noqa: RUF012
        "denoising_rmse": Metric("RMSE of denoised points"),
        "noisy_rmse": Metric("RMSE of noisy points", "neither"),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models with latents, and a complete test split without auxiliary columns."""
        return isinstance(model, HasLatents) and data.test.mask is None and data.test.aux is None

    def check(self, model: Any, data: Any, settings: Settings) -> None:
        """Raise a UserError if the model cannot remove noise, or there is none."""
        sd = settings.get("denoising")
        if sd is None:
            return
        if not self.fits(model, data):
            raise UserError(
                "evaluation.denoising needs a model with latents, and complete test data without auxiliary columns"
            )
        if isinstance(sd, bool) or not isinstance(sd, int | float) or sd <= 0:
            raise UserError(f"evaluation.denoising={sd} must be the sd of the noise, above 0")

    def scores(self, subject: Subject) -> Scores:
        """Of the denoised and of the noisy points."""
        if subject.settings.get("denoising") is None:
            return {}
        clean, noisy, denoised = denoise(subject)
        return {"denoising_rmse": rmse(denoised - clean), "noisy_rmse": rmse(noisy - clean)}

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """Clean, noisy and denoised points."""
        from src.evaluation import fit_figures

        if subject.settings.get("denoising") is not None:
            clean, noisy, mean = (part[:IMAGES] for part in denoise(subject))
            yield "denoising", fit_figures.denoised(clean, noisy, mean, subject.limits)


class Points(NamedTuple):
    """Test points [n, *shape] on the CPU."""

    clean: Tensor
    noisy: Tensor
    denoised: Tensor


def denoise(subject: Subject) -> Points:
    """Encode noisy points, as the model would any unseen one, and decode their latent means."""
    model, facts = subject.model, subject.data.facts
    clean = model.as_float(chosen(subject.data.test, facts.scale).x.to(model.device)).cpu()
    noisy = with_noise(clean, subject.settings["denoising"], facts.scale)
    z = latent_means(model, split_of(noisy), seen=False)
    return Points(clean, noisy, decoded(model, z, subject.given, None).mean)


def chosen(test: Split, scale: str) -> Batch:
    """All rows of a table, or random images."""
    return test.all() if scale == "table" else test.draw(IMAGES, stream(0, IMAGES))


def with_noise(clean: Tensor, sd: float, scale: str) -> Tensor:
    """White noise on one random column of each row, or on random pixels, which stay within 0..1."""
    generator = torch.Generator().manual_seed(stream(0, PIXELS))
    values = clean.flatten(1)
    count = 1 if scale == "table" else min(PIXELS, values.shape[1])
    places = torch.rand(values.shape, generator=generator).argsort(1)[:, :count]
    noise = sd * torch.randn(len(values), count, generator=generator, dtype=values.dtype)
    noisy = values.scatter_add(1, places, noise).view_as(clean)
    return noisy if scale == "table" else noisy.clamp(0, 1)


def rmse(error: Tensor) -> float:
    """The root mean square."""
    return error.double().square().mean().sqrt().item()
