"""The fit of a sparse GP-LVM to its training data, and whether its inducing inputs lie where its latents do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from src.data.batch import Split
from src.evaluation.task import CHUNK, Metric, Scores, Settings, Subject, Task, decoded
from src.gp.regularisation import symmetric_divergence
from src.models.capabilities import HasInducingLatents, HasLatents
from src.models.likelihoods import masked
from src.runs.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Fit(Task):
    """What Meng et al. score: the training data decoded at their own latent means, and the ASKL of inducing inputs.

    It is scored if the data have no test part, or with `evaluation.fit=true`. `elbo` is the bound on log p(x) of the
    training data without the regulariser, in nats per value: runs with different weights compare by it.
    """

    name = "fit"
    order = 2
    metrics = {  # noqa: RUF012
        "fit_rmse": Metric("RMSE, training"),
        "askl": Metric("ASKL"),
        "elbo": Metric("ELBO, training", "higher"),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models with inducing inputs among their latents."""
        return isinstance(model, HasInducingLatents)

    def check(self, model: Any, data: Any, settings: Settings) -> None:
        """Raise a UserError if there are no inducing inputs to compare."""
        if settings.get("fit") and not self.fits(model, data):
            raise UserError(
                f"evaluation.fit=true needs inducing inputs among the latents, as model=bayesian_gplvm has, but "
                f"{type(model).__name__} has none: leave the option out"
            )

    def scores(self, subject: Subject) -> Scores:
        """Of all training data."""
        if not is_asked(subject):
            return {}
        model, z = subject.model, subject.train_latents
        return {
            "fit_rmse": fit_rmse(model, subject.data.train, z, subject.given),
            "askl": symmetric_divergence(z, model.inducing.detach().cpu()).item(),
            "elbo": model.elbo(subject.data.train),
        }

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """The distributions of latent means and inducing inputs in each dimension."""
        from src.evaluation import fit_figures

        if is_asked(subject):
            yield "inducing", fit_figures.by_dimension(subject.train_latents, subject.model.inducing.detach().cpu())


def is_asked(subject: Subject) -> bool:
    """Whether the training data are scored."""
    return subject.data.test_is_train or bool(subject.settings.get("fit"))


def fit_rmse(model: HasLatents, train: Split, z: Tensor, given: Any) -> float:
    """The root mean squared error of the observed values of a split, decoded at latent means z [N, Q]."""
    total, values = torch.zeros((), dtype=torch.float64), 0
    for chunk in train.chunks(CHUNK):
        mean = decoded(model, z[chunk.index], given, chunk.aux).mean
        total += masked(model.as_float(chunk.x).cpu() - mean, chunk.mask).square().sum(dtype=torch.float64)
        values += chunk.observed
    return (total / values).sqrt().item()
