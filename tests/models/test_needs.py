"""What rules out a pair before torch is loaded rules it out afterwards too, with the same sentence, and vice versa."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from src.data.facts import Facts, Target
from src.data.known import Known, known
from src.models import needs
from src.models.base import build
from src.runs.errors import UserError
from tests.configs import composed

MODELS = sorted(path.stem for path in Path("conf/model").glob("*.yaml"))
DATASETS = ["digits", "mnist", "frey", "rectangles", "flights", "toy_curve", "rotated_mnist", "moving_ball"]
LATER = {  # what shows when a model is built: the cost of an exact GP, and what predictions condition on
    ("gp_vae", "rotated_mnist"),
    ("gplvm", "toy_curve"),
}
OPTIONS = [
    "model=sas active_set.size=512",
    "model=sas active_set=random",
    "model=sas active_set=random dataset.batch_size=full",
    "model=sas model.likelihood=bernoulli",
    "model=sas model.likelihood=bernoulli dataset=rectangles",
    "model=sas model.likelihood=bernoulli dataset.binary=true",
    "model=sas model.warp=logit",
    "model=sas model.warp=logit dataset=oil_flow",
    "model=sas model.warp=logit dataset=rectangles",
    "model=sas_classifier active_set.size=512",
    "model=sas_classifier dataset.missing.fraction=0.5",
    "model=bayesian_gplvm model.bound=collapsed",
    "model=bayesian_gplvm model.bound=collapsed dataset.batch_size=full",
    "model=bayesian_gplvm model.num_inducing=1438",
    "model=autogp model.num_inducing=1438",
    "model=svgp_vae model.num_inducing=1438",
    "model=casale_gp_vae dataset=rotated_mnist model.prior=exact",
]


def facts_of(found: Known) -> Facts:
    """Facts of data of which all this is known; images and tables are small."""
    kind = found.target or "none"
    return Facts(
        shape=(1, 16, 16) if found.scale == "image" else (1,),
        num_train=found.num_train or 100,
        batch_size=found.batch_size or 100,
        target=Target(kind, {"none": 0, "class": 3, "real": 1}[kind]),  # type: ignore[arg-type]
        aux=found.aux or (),
        objects=400 if "object" in (found.aux or ()) else None,
        group="video" if "video" in (found.aux or ()) else None,
        group_size=30 if "video" in (found.aux or ()) else None,
        complete=True,
        complete_test=bool(found.complete),
        binary=bool(found.binary),
        levels=0,
        fresh=found.fresh,
        scale=found.scale or "image",  # type: ignore[arg-type]
    )


def both(*overrides: str) -> tuple[str | None, str | None]:
    """The first sentence that rules out a pair before torch is loaded, and the one when the model is built."""
    config = composed(*overrides)
    found = known(config["dataset"])
    assert found is not None
    facts = facts_of(found)
    try:
        build(config["model"], facts).check(facts)
    except UserError as error:
        return next(needs.problems(config["model"], found), None), str(error)
    return next(needs.problems(config["model"], found), None), None


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", MODELS)
def test_a_pair_is_ruled_out_before_torch_exactly_if_the_model_rules_it_out(model: str, dataset: str) -> None:
    before, after = both(f"model={model}", f"dataset={dataset}")
    if (model, dataset) in LATER:
        assert before is None and after is not None
    else:
        assert before == after


@pytest.mark.parametrize("line", OPTIONS)
def test_options_are_ruled_out_before_torch_exactly_if_the_model_rules_them_out(line: str) -> None:
    before, after = both(*line.split())
    assert before == after


def test_some_of_these_options_are_ruled_out_and_some_are_not() -> None:
    ruled_out = [both(*line.split())[0] is not None for line in OPTIONS]
    assert sum(ruled_out) == 12 and len(ruled_out) == 17


def test_what_is_not_known_rules_nothing_out() -> None:
    nothing = Known(aux=None, binary=None, complete=None)
    for model in MODELS:
        spec = composed(f"model={model}")["model"]
        assert list(needs.problems(spec, nothing)) == [], model


def test_classes_below_a_declared_one_have_its_needs() -> None:
    assert needs.needs_of("Mine", "SAS", "GPDecoder").rest_of_batch
    assert needs.needs_of("Mine", "Model") == needs.Needs()


def test_inputs_that_a_model_would_ignore_are_named() -> None:
    learned = needs.needs_of("Learned")
    problem = needs.aux_problem("this model", learned, ("angle", "object"))
    assert problem is not None and problem.startswith("model.aux=Learned would ignore the auxiliary columns angle and")
    assert needs.aux_problem("this model", learned, ()) is None


@pytest.mark.parametrize(
    ("kinds", "kind", "sentence"),
    [
        (("real",), "class", "X predicts real numbers, but the targets are classes: use model=sas_classifier or"),
        (("class",), "real", "X predicts classes, but the targets are real numbers: use model=sas_regression or"),
        (("class", "real"), "none", "X predicts a target, but the dataset has none"),
    ],
)
def test_the_sentence_says_what_to_use_instead(kinds: Sequence[str], kind: str, sentence: str) -> None:
    problem = needs.target_problem("X", needs.Needs(targets=tuple(kinds)), kind, complete=True)
    assert problem is not None and problem.startswith(sentence)
