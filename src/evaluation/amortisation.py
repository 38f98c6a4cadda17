"""The amortisation gap: how much of the bound is lost because an encoder answers for all points at once."""

from collections.abc import Mapping
from typing import Any

import torch

from src.data.batch import Split
from src.evaluation.task import Metric, Scores, Settings, Subject, Task
from src.models.capabilities import Refines
from src.runs.errors import UserError
from src.runs.randomness import stream

POINTS = 1000  # of each split; refining them takes hundreds of gradients of the decoder


class Amortisation(Task):
    """E_q[log p(x | z)] - KL[q(z) || p(z)] of the observed values, in nats per point; only on request.

    `bound` is that of the encoder's q(z), `refined_bound` that of the q(z) with the same form that is best for each
    point, with the decoder frozen; `amortisation_gap` is the difference. Scored on random points of each split.
    """

    name = "amortisation"
    order = 62
    metrics = {  # noqa: RUF012
        "bound_train": Metric("bound, training", "higher", 2),
        "refined_bound_train": Metric("refined bound, training", "higher", 2),
        "amortisation_gap_train": Metric("amortisation gap, training", "lower", 2),
        "bound_test": Metric("bound, test", "higher", 2),
        "refined_bound_test": Metric("refined bound, test", "higher", 2),
        "amortisation_gap_test": Metric("amortisation gap, test", "lower", 2),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models with an encoder, whose answer is a Gaussian q(z) of each point."""
        return isinstance(model, Refines) and not model.latents.free and model.latents.kind != "point"

    def check(self, model: Any, data: Any, settings: Settings) -> None:
        """Raise a UserError if there is no gap to measure."""
        if settings["refine"] and not self.fits(model, data):
            raise UserError(
                f"evaluation.refine=true needs an encoder that gives a Gaussian q(z) of each point by itself, but "
                f"{reason(model)}: leave the option out"
            )

    def scores(self, subject: Subject) -> Scores:
        """The bounds of both splits and their gaps."""
        if not subject.settings["refine"]:
            return {}
        splits = {"train": subject.data.train, "test": subject.data.test}
        bounds = {name: mean_bounds(subject.model, split, subject.seed) for name, split in splits.items()}
        return {f"{score}_{name}": value for name, found in bounds.items() for score, value in found.items()}

    def summary(self, metrics: Scores, published: Mapping[str, str]) -> list[str]:
        """One line per split."""
        if "bound_train" not in metrics:
            return []
        heads = {"encoder": "bound", "refined": "refined_bound", "gap": "amortisation_gap"}
        lines = ["", f"{'bound, nats/point':<20}" + "".join(f"{head:>18}" for head in heads)]
        for split, label in (("train", "training"), ("test", "test")):
            lines.append(f"{label:<20}" + "".join(f"{metrics[f'{key}_{split}']:>18.2f}" for key in heads.values()))
        return [*lines, ""]


def reason(model: Any) -> str:
    """Why a model has no amortisation gap."""
    name = type(model).__name__
    if not isinstance(model, Refines):
        return f"{name} has no bound of a single point"
    return "model.amortised=false has no encoder" if model.latents.free else f"q(z) of {name} is a point"


def mean_bounds(model: Refines, split: Split, seed: int) -> Scores:
    """The mean bound over random points, of the encoder's q(z) and after its refinement, and the difference."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(stream(seed, POINTS)))
    batch = split[order[:POINTS]].to(model.device)
    start = model.recognise(batch)
    before, after = (model.lower_bound(batch, q).double().mean().item() for q in (start, model.refine(batch, start)))
    return {"bound": before, "refined_bound": after, "amortisation_gap": after - before}
