"""Prediction of targets by supervised models: errors, probabilities or densities, and how far they can be trusted."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from src.data.batch import Split
from src.evaluation.reconstruction import over_active_sets, score_lines
from src.evaluation.shown import levels
from src.evaluation.task import CHUNK, Metric, Scores, Subject, Task
from src.models.capabilities import Predicts
from src.runs.bars import bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 15  # of the top probability, of equal width
COVERAGES = (50, 90)  # per cent, of central intervals
SHOWN = 20  # wrong images in the figure


class Prediction(Task):
    """Scores of the targets of the test split; densities and probabilities in nats per target.

    Models that condition on training points are scored as in reconstruction: with `active_sets` random active sets of
    their own size and with sets of `condition_on` points, each set alone and their mixture.
    """

    name = "prediction"
    order = 5
    validated = True
    watched = ("error_rate", "target_nlp", "smse", "target_nlpd")
    metrics = {  # noqa: RUF012
        "error_rate": Metric("error rate"),
        "target_nlp": Metric("NLP of the class"),
        "ece": Metric("calibration error"),
        "target_rmse": Metric("RMSE of the target"),
        "target_mae": Metric("MAE of the target"),
        "target_nlpd": Metric("NLPD of the target", digits=3),
        "smse": Metric("SMSE"),
        "coverage_50": Metric("coverage of 50 % intervals", "neither", 3),
        "coverage_90": Metric("coverage of 90 % intervals", "neither", 3),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models that predict, and a test split with targets."""
        return isinstance(model, Predicts) and data.test.y is not None

    def scores(self, subject: Subject) -> Scores:
        """Scores with active sets of the model's own size, and of a larger one."""
        return over_active_sets(subject, lambda sets: predictive_scores(subject, sets))

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """Of classes: reliability, the confusion matrix, and the most confidently wrong images."""
        from src.evaluation import prediction_figures

        data, facts = subject.data, subject.data.facts
        if facts.target.kind != "class":
            return
        assert data.test.y is not None
        names = facts.classes or tuple(map(str, range(facts.target.size)))
        p = predicted(subject.model, data.test, [subject.given])[0].p.exp()
        yield "reliability", prediction_figures.reliability(bins(p, data.test.y), confusion(p, data.test.y), names)
        wrong = confidently_wrong(p, data.test.y)
        if facts.scale == "image" and len(wrong):
            x = subject.model.as_float(data.test[wrong].x.to(subject.model.device)).cpu()
            yield (
                "confidently_wrong",
                prediction_figures.wrong_images(levels(x, subject.limits), p[wrong], data.test.y[wrong], names),
            )

    def summary(self, metrics: Scores, published: Mapping[str, str]) -> list[str]:
        """A table: one line per kind of active set, with the published values below it."""
        lines = score_lines("targets", {name: name for name in self.metrics if name in metrics}, metrics, published)
        return [*lines, ""] if lines else []


class Predicted(NamedTuple):
    """What a model, or a mixture over active sets, says about n test points, on the CPU in float64."""

    p: Tensor  # log probabilities of the classes [n, P], or log densities of the P real targets together [n]
    mean: Tensor  # [n, P]; empty for classes
    cdf: Tensor  # [n, P], the predicted probability of a target below the true one; empty for classes


def predictive_scores(subject: Subject, givens: Sequence[Any]) -> Scores:
    """Mean and sd over the active sets, and the scores of their mixture if there are several."""
    *single, mixture = [scores_of(subject, p) for p in predicted(subject.model, subject.data.test, givens)]
    found = {name: mean([scores[name] for scores in single]) for name in single[0]}
    if len(single) > 1:
        found |= {f"{name}_sd": sd([scores[name] for scores in single]) for name in single[0]}
        found |= {f"{name}_mixture": value for name, value in mixture.items()}
    return found


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return math.fsum(values) / len(values)


def sd(values: Sequence[float]) -> float:
    """The sample standard deviation."""
    return torch.tensor(values, dtype=torch.float64).std().item()


@torch.no_grad()
def predicted(model: Predicts, test: Split, givens: Sequence[Any]) -> list[Predicted]:
    """The predictions of a split given each active set, and then those of their mixture."""
    chunks = bar(test.chunks(CHUNK), "predicting", math.ceil(len(test) / CHUNK))
    index, parts = [], []
    for chunk in chunks:
        batch = chunk.to(model.device)
        x, y = model.as_float(batch.x), batch.y
        index.append(chunk.index)
        parts.append(with_mixture([of_chunk(model.predict(x, given), y) for given in givens]))
    order = torch.cat(index).argsort()
    return [
        Predicted(*(torch.cat(field)[order] for field in zip(*each, strict=True))) for each in zip(*parts, strict=True)
    ]


def of_chunk(p: Distribution, y: Tensor | None) -> Predicted:
    """What is kept of the predictions of some points."""
    assert y is not None
    if isinstance(p, Categorical):
        nothing = torch.empty(len(y), 0, dtype=torch.float64)
        return Predicted(p.logits.double().cpu(), nothing, nothing)
    log_density = p.log_prob(y.to(p.mean)).double().sum(1)
    return Predicted(*(part.double().cpu() for part in (log_density, p.mean, p.cdf(y.to(p.mean)))))


def with_mixture(each: list[Predicted]) -> list[Predicted]:
    """Also the mixture with equal weights: means of probabilities, densities, means and distribution functions."""
    p, means, cdf = (torch.stack(field) for field in zip(*each, strict=True))
    return [*each, Predicted(p.logsumexp(0) - math.log(len(each)), means.mean(0), cdf.mean(0))]


def scores_of(subject: Subject, p: Predicted) -> Scores:
    """The scores of one prediction of the test split."""
    y, train = subject.data.test.y, subject.data.train.y
    assert y is not None and train is not None
    if subject.data.facts.target.kind == "class":
        return class_scores(p.p, y)
    return real_scores(p, y.double(), train.double().var(0, correction=0))


def class_scores(log_p: Tensor, y: Tensor) -> Scores:
    """Of log probabilities [n, P] and classes y [n]."""
    wrong = log_p.argmax(-1) != y
    return {
        "error_rate": wrong.double().mean().item(),
        "target_nlp": -log_p.gather(1, y.unsqueeze(1)).mean().item(),
        "ece": calibration_error(bins(log_p.exp(), y)),
    }


def real_scores(p: Predicted, y: Tensor, variance: Tensor) -> Scores:
    """Of real targets y [n, P]; `variance` [P] is that of the training targets, which a constant guess would have.

    SMSE is the mean squared error of a target divided by it, averaged over the targets; `smse_t1` is that of the first.
    """
    error = p.mean - y
    smse = error.square().mean(0) / variance.clamp_min(torch.finfo(y.dtype).tiny)
    inside = {f"coverage_{c}": (p.cdf - 0.5).abs() <= c / 200 for c in COVERAGES}
    each = {f"smse_t{number}": value for number, value in enumerate(smse.tolist(), 1)} if len(smse) > 1 else {}
    return {
        "target_rmse": error.square().mean().sqrt().item(),
        "target_mae": error.abs().mean().item(),
        "target_nlpd": -p.p.sum().item() / y.numel(),
        "smse": smse.mean().item(),
        **{name: covered.double().mean().item() for name, covered in inside.items()},
        **each,
    }


class Bins(NamedTuple):
    """Test points by their top probability, in BINS bins of equal width from 0 to 1."""

    points: Tensor  # [BINS], their number
    confidence: Tensor  # [BINS], the mean top probability; 0 in an empty bin
    accuracy: Tensor  # [BINS], the part whose top class is true


def bins(p: Tensor, y: Tensor) -> Bins:
    """The bins of probabilities [n, P] and classes y [n]."""
    top, guess = p.max(-1)
    place = (top * BINS).long().clamp_max(BINS - 1)
    sums = torch.zeros(3, BINS, dtype=torch.float64)
    sums.index_add_(1, place, torch.stack([torch.ones_like(top), top, (guess == y).double()]))
    return Bins(sums[0], *(sums[1:] / sums[0].clamp_min(1)))


def calibration_error(found: Bins) -> float:
    """The expected calibration error: |accuracy - confidence| of the bins, weighted by their points."""
    return ((found.accuracy - found.confidence).abs() * found.points).sum().item() / found.points.sum().item()


def confusion(p: Tensor, y: Tensor) -> Tensor:
    """Counts [P, P]: the true class in rows, the predicted one in columns."""
    num_classes = p.shape[1]
    return (num_classes * y + p.argmax(-1)).bincount(minlength=num_classes**2).view(num_classes, num_classes)


def confidently_wrong(p: Tensor, y: Tensor) -> Tensor:
    """The rows of wrong predictions, the most confident first, at most SHOWN."""
    top, guess = p.max(-1)
    wrong = (guess != y).nonzero().squeeze(1)
    return wrong[top[wrong].argsort(descending=True)][:SHOWN]
