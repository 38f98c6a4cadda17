"""Generation of unseen views from object and angle alone, scored as in the SVGP-VAE paper."""

from typing import Any

import torch
from torch import Tensor

from src.evaluation.task import Arrays, Metric, Scores, Subject, Task, decoded
from src.models.capabilities import Generates

SHOWN = 10  # test views in the report's figure
POINTS = 2000  # training views in the figure of their latents


class Generation(Task):
    """The squared error per pixel of test views that are generated from their auxiliary columns alone.

    `mse_sample` is the published score, of one latent sample with a constant seed; `mse_mean` uses the latent mean.
    """

    name = "generation"
    order = 20
    metrics = {  # noqa: RUF012
        "mse_sample": Metric("test MSE"),
        "mse_mean": Metric("test MSE of the latent mean"),
    }

    watched = ("mse_sample", "mse_mean")

    def fits(self, model: Any, data: Any) -> bool:
        """Models that generate, and data with objects."""
        return isinstance(model, Generates) and "object" in data.facts.aux

    def scores(self, subject: Subject) -> Scores:
        """The errors of a latent sample and of the latent mean."""
        model, test = subject.model, subject.data.test.all().to(subject.model.device)
        q = model.generate(test.aux)
        noise = torch.randn(q.mean.shape, generator=torch.Generator().manual_seed(0)).to(q.mean)
        x = model.as_float(test.x)

        def error(z: Tensor) -> float:
            difference = model.decode(z, None, test.aux).mean - x
            return float((difference if test.mask is None else difference[test.mask]).square().mean())

        return {"mse_sample": error(q.mean + q.stddev * noise), "mse_mean": error(q.mean)}

    def artifacts(self, subject: Subject) -> Arrays:
        """The first test views, and the views that the model generates from their object and angle."""
        model, test = subject.model, subject.data.test[torch.arange(min(SHOWN, len(subject.data.test)))]
        assert test.aux is not None
        z = model.generate(test.aux.to(model.device)).mean
        generated = decoded(model, z, None, test.aux).mean
        views = subject.data.test.truth(test.index)  # to look at
        both = {"views": views.float().numpy(), "generated_views": generated.float().numpy()}
        return both | view_latents(subject)


def view_latents(subject: Subject) -> Arrays:
    """Two principal components of the latents of random training views, with their angles and labels."""
    train = subject.data.train
    if train.y is None or subject.model.latent_dim < 2:
        return {}
    drawn = train.draw(min(POINTS, len(train)), subject.seed)
    assert drawn.aux is not None and drawn.y is not None
    z = subject.train_latents[drawn.index]
    _, _, axes = torch.pca_lowrank(z, 2, niter=10)
    angles = drawn.aux[:, subject.data.facts.aux.index("angle")]
    plane = (z - z.mean(0)) @ axes
    return {"view_latents": plane.float().numpy(), "view_angles": angles.numpy(), "view_labels": drawn.y.numpy()}
