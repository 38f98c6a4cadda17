"""What models need of data, without torch, so that commands reject a pair that cannot work before anything loads.

The models themselves ask the same functions. A fact that is not known yet is None and rules nothing out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from src.data.known import Known
from src.runs.errors import UserError
from src.runs.identity import class_name
from src.runs.specs import Spec

MINI_BATCHES = "model.bound=svi takes mini-batches"
OTHER_PRIOR = "model.prior=taylor takes mini-batches"
UNBIASED = "its estimate is unbiased only if the active set may hold up to N - 1 points"
WORDS = {"class": "classes", "real": "real numbers"}
INSTEAD = {"class": "sas_classifier or model=autogp", "real": "sas_regression or model=autogp"}


class Needs(NamedTuple):
    """What a class asks of the data, or of a batch."""

    targets: tuple[str, ...] = ()  # the kinds of targets that it predicts; none: it predicts no target
    aux: tuple[str, ...] = ()  # the auxiliary columns that it takes
    one_aux: tuple[str, ...] = ()  # the auxiliary columns of which it takes one
    without_aux: bool = False  # True: it would ignore auxiliary columns
    rest_of_batch: bool = False  # True: it predicts the rest of each batch from an active set in it


NEEDS = {
    "AutoGP": Needs(targets=("class", "real")),
    "BayesianSAS": Needs(rest_of_batch=True),
    "CVAE": Needs(one_aux=("angle", "time")),
    "Learned": Needs(without_aux=True),
    "ObjectAngle": Needs(aux=("object", "angle")),
    "Predictor": Needs(targets=("class", "real")),
    "SAS": Needs(rest_of_batch=True),
    "SASClassifier": Needs(targets=("class",), rest_of_batch=True),
    "SASRegression": Needs(targets=("real",), rest_of_batch=True),
    "SparseRegression": Needs(targets=("real",)),
    "VideoTime": Needs(aux=("video", "time")),
}


def needs_of(*names: str) -> Needs:
    """The needs of a class by its name, or by that of the first class above it that declares any."""
    return next((NEEDS[name] for name in names if name in NEEDS), Needs())


def require(problem: str | None) -> None:
    """Raise a UserError if there is a problem."""
    if problem is not None:
        raise UserError(problem)


def problems(spec: Spec, facts: Known) -> Iterator[str]:
    """What rules out a model of this spec for such data, one sentence each."""
    name = class_name(spec["_target_"])
    needs, auxiliary = needs_of(name), needs_of(class_name((spec.get("aux") or {}).get("_target_", "")))
    found = [
        target_problem(name, needs, facts.target, facts.complete),
        aux_problem(name, needs, facts.aux),
        aux_problem("this model", auxiliary, facts.aux),
        None if needs.targets else bits_problem(spec.get("likelihood"), facts.binary),
        warp_problem(spec.get("warp"), facts.scale, facts.binary),
        *size_problems(spec, needs, facts),
    ]
    return (problem for problem in found if problem is not None)


def target_problem(name: str, needs: Needs, kind: str | None, complete: bool | None) -> str | None:
    """A predictor needs targets of its kind, and complete observations."""
    if needs.targets and complete is False:
        return f"{name} needs complete data, but values are missing (NaN, or hidden by dataset.missing)"
    if not needs.targets or kind is None or kind in needs.targets:
        return None
    if kind == "none":
        return f"{name} predicts a target, but the dataset has none"
    wanted = " or ".join(WORDS[target] for target in needs.targets)
    return f"{name} predicts {wanted}, but the targets are {WORDS[kind]}: use model={INSTEAD[kind]}"


def aux_problem(name: str, needs: Needs, aux: tuple[str, ...] | None) -> str | None:
    """The auxiliary columns must be there, and none may be ignored."""
    if aux is None:
        return None
    there = " and ".join(aux) or "none"
    if missing := [column for column in needs.aux if column not in aux]:
        wanted = " and ".join(needs.aux)
        return f"{name} needs the auxiliary columns {wanted}; the dataset has {there}, so no {missing[0]}"
    if needs.one_aux and len(set(needs.one_aux) & set(aux)) != 1:
        wanted = " or ".join(f"`{column}`" for column in needs.one_aux)
        return f"{name} needs an auxiliary column {wanted}; the dataset has {there}"
    if needs.without_aux and aux:
        return (
            f"model.aux=Learned would ignore the auxiliary columns {there} of this dataset; "
            "conf/pair has settings for dataset=rotated_mnist and dataset=moving_ball"
        )
    return None


def bits_problem(likelihood: str | None, binary: bool | None) -> str | None:
    """Grey values are no bits: their cross-entropy is not a log probability."""
    if likelihood != "bernoulli" or binary is not False:
        return None
    return "model.likelihood=bernoulli needs binary values (0 or 1); use model.likelihood=gaussian"


def warp_problem(warp: str | None, scale: str | None, binary: bool | None) -> str | None:
    """A warp takes grey values between 0 and 1."""
    if warp is None or (scale != "table" and not binary):
        return None
    return "model.warp=logit needs images with intensities between 0 and 1"


def size_problems(spec: Spec, needs: Needs, facts: Known) -> Iterator[str | None]:
    """Numbers of points that do not fit a batch or the training split."""
    size, batch, total = spec.get("active_set"), facts.batch_size, facts.num_train
    if needs.rest_of_batch and isinstance(size, int):
        yield active_set_problem(size, batch)
    if needs.rest_of_batch and not needs.targets and size == "random":
        yield full_batch_problem("active_set=random", batch, total, UNBIASED)
    if spec.get("bound") == "collapsed":
        yield full_batch_problem("model.bound=collapsed", batch, total, MINI_BATCHES)
    if spec.get("prior") == "exact":
        yield full_batch_problem("model.prior=exact", batch, total, OTHER_PRIOR)
    if isinstance(count := spec.get("num_inducing"), int):
        yield inducing_problem(count, total)


def active_set_problem(size: int, batch_size: int | None) -> str | None:
    """The active set is a part of the batch, and something must be left to predict."""
    if batch_size is None or 1 <= size < batch_size:
        return None
    return (
        f"active_set.size={size} must be at least 1 and smaller than the batch of {batch_size} (dataset.batch_size): "
        "the active set is drawn from the batch and predicts the rest of it"
    )


def full_batch_problem(what: str, batch_size: int | None, num_train: int | None, otherwise: str) -> str | None:
    """An option that needs all points at once, with mini-batches."""
    if batch_size is None or num_train is None or batch_size >= num_train:
        return None
    return (
        f"{what} needs all {num_train} points in every batch (dataset.batch_size=full), not {batch_size}; {otherwise}"
    )


def inducing_problem(count: int, num_train: int | None) -> str | None:
    """More inducing points than training points."""
    if num_train is None or count <= num_train:
        return None
    return f"model.num_inducing={count} must not exceed the {num_train} training points"
