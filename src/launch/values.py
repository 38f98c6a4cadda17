"""Values of settings: types and ranges, checked before torch loads and before any cell of a sweep starts.

A setting with a rule must follow it. Any other value on the command line must have the type of the default value that
it replaces, so that a new option is checked without a word about it here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from src.data.known import OF_USERS, known, size_problem
from src.launch import hydra_private
from src.launch.cli import CONF
from src.launch.hydra_private import ConfigLoader, config_loader, key_of
from src.models import needs
from src.runs.code import ROOT
from src.runs.contents import named
from src.runs.errors import UserError
from src.runs.identity import Config, class_name
from src.runs.request import RunRequest


class Rule(NamedTuple):
    """What a value must be, as a sentence says it, and the test."""

    allowed: str
    holds: Callable[[Any], bool]

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(f"{self.allowed}, or {other.allowed}", lambda value: self.holds(value) or other.holds(value))


def shown(value: Any) -> str:
    """A value as it is typed."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return is_whole(value) or (isinstance(value, float) and abs(value) < float("inf"))


def whole(least: int) -> Rule:
    """An integer that is not below `least`."""
    return Rule(f"a whole number of at least {least}", lambda value: is_whole(value) and value >= least)


def one_of(*values: Any) -> Rule:
    """One of a few values."""
    return Rule(" or ".join(map(shown, values)), lambda value: value in values and not isinstance(value, bool))


def up_to(rule: Rule, most: int) -> Rule:
    """Numbers that follow a rule and are not above `most`."""
    return Rule(f"{rule.allowed} and at most {most}", lambda value: rule.holds(value) and value <= most)


def several(rule: Rule) -> Rule:
    """A list whose items follow a rule."""
    items = f"a list such as [64,32], each {rule.allowed}"
    return Rule(items, lambda value: isinstance(value, list) and all(map(rule.holds, value)))


def is_taken(name: str) -> bool:
    """Whether a dataset of ours has this name, so that tables would take other data for it."""
    return (CONF / "dataset" / f"{name.lower()}.yaml").exists()


def likelihoods() -> list[str]:
    """The names in src/models/likelihoods.py, read as text: importing it would load torch."""
    return re.findall(r'^    name = "(\w+)"$', (ROOT / "src/models/likelihoods.py").read_text(), re.MULTILINE)


ANYTHING = Rule("anything", lambda value: True)
NULL = one_of(None)
POSITIVE = Rule("a number above 0", lambda value: is_number(value) and value > 0)
NOT_NEGATIVE = Rule("a number of at least 0", lambda value: is_number(value) and value >= 0)
PART = Rule("a number above 0 and below 1", lambda value: is_number(value) and 0 < value < 1)
SHARE = Rule("a number above 0 and not above 1", lambda value: is_number(value) and 0 < value <= 1)
PATH = Rule("the path of a folder", lambda value: isinstance(value, str) and value != "")
TIME = Rule(
    "a time as days:hours:minutes:seconds, such as 00:08:00:00",
    lambda value: isinstance(value, str) and re.fullmatch(r"\d+:\d+:\d+:\d+", value) is not None,
)
NAME = Rule(
    "a name of letters, digits, _ and ., such as wine, that no other dataset has",
    lambda value: isinstance(value, str) and re.fullmatch(r"\w[\w.]*", value) is not None and not is_taken(value),
)
BY_DEFAULT = {  # the type of a default value, and what may replace it
    bool: Rule("true or false", lambda value: isinstance(value, bool)),
    int: Rule("a whole number", is_whole),
    float: Rule("a number", is_number),
    list: Rule("a list", lambda value: isinstance(value, list)),
    dict: Rule("settings in braces, such as {key: value}, or null", lambda value: value is None),  # braces are merged
}

FLAG = BY_DEFAULT[bool]
PRECISIONS = "32-true", "64-true", "16-true", "16-mixed", "bf16-true", "bf16-mixed", "bf16", 16, 32, 64
SIZE = whole(1) | one_of("random")
RULES = {
    "seed": up_to(whole(0), 2**32 - 1),  # what NumPy takes
    "paths.data": PATH,
    "paths.outputs": PATH,
    "checkpoint_minutes": NOT_NEGATIVE,
    "active_set.size": SIZE,
    "trainer.accelerator": one_of("auto", "cpu", "gpu", "cuda", "mps", "tpu"),
    "trainer.devices": whole(1) | one_of("auto", -1) | several(whole(0)),
    "trainer.max_epochs": whole(1),
    "trainer.max_time": TIME | NULL,
    "trainer.precision": one_of(*PRECISIONS),
    "optimizer.lr": POSITIVE,
    "optimizer.gp_lr_factor": NOT_NEGATIVE | NULL,
    "optimizer.latent_lr_factor": NOT_NEGATIVE | NULL,
    "optimizer.schedule": one_of("cosine", "late", "constant"),
    "optimizer.algorithm.weight_decay": NOT_NEGATIVE,
    "optimizer.algorithm.history_size": whole(1),
    "optimizer.algorithm.max_iter": whole(1),
    "encoder.channels": several(whole(1)),
    "encoder.hidden": whole(1) | several(whole(1)),
    "kernel.base_kernel.degree": one_of(0, 1, 2),
    "kernel.base_kernel.depth": whole(1),
    "kernel.base_kernel.nu": one_of(0.5, 1.5, 2.5),
    "dataset.batch_size": whole(1) | one_of("full"),
    "dataset.batch_videos": whole(1),
    "dataset.binary": FLAG | one_of("stochastic", None),
    "dataset.digits": several(up_to(whole(0), 9)) | NULL,
    "dataset.max_train": whole(1) | NULL,
    "dataset.max_test": whole(1) | NULL,
    "dataset.name": NAME | NULL,
    "dataset.num_train_videos": whole(1),
    "dataset.num_test_videos": whole(1),
    "dataset.size": whole(1),
    "dataset.steps_per_epoch": whole(1),
    "dataset.validation": PART | NULL,
    "dataset.missing.fraction": SHARE | NULL,
    "dataset.missing.kind": one_of("random", "block", None),
    "dataset.missing.split": one_of("test", "train", "both", None),
    "evaluation.active_sets": whole(1),
    "evaluation.condition_on": whole(1),
    "evaluation.evidence_points": whole(2) | NULL,
    "evaluation.evidence_precision": one_of("float32", "float64"),
    "evaluation.denoising": POSITIVE | NULL,
    "evaluation.fit": FLAG | NULL,
    "evaluation.geometry": FLAG | NULL,
    "evaluation.refine": FLAG | NULL,
    "evaluation.watch_every": whole(1) | NULL,
    "search.metric": Rule("the name of a metric", lambda value: isinstance(value, str)) | NULL,
    "model.active_set": SIZE,
    "model.aux.object_dim": whole(1),
    "model.bound": one_of("svi", "collapsed"),
    "model.bound_epochs": whole(1) | NULL,
    "model.components": whole(1),
    "model.covariance": one_of("full", "diagonal"),
    "model.features": whole(1) | NULL,
    "model.geco": POSITIVE | NULL,
    "model.gp_epochs": whole(1) | NULL,
    "model.inducing": one_of("free", "fixed", None),
    "model.iterations": whole(1),
    "model.likelihood": one_of(*likelihoods(), None),
    "model.latent_dim": whole(1),
    "model.loo_epochs": whole(1) | NULL,
    "model.noise": POSITIVE,
    "model.num_inducing": whole(1),
    "model.objective": one_of("elbo", "loo"),
    "model.prior": one_of("taylor", "exact"),
    "model.regularisation": NOT_NEGATIVE | one_of("inducing", None),
    "model.samples": whole(0),
    "model.share": one_of("none", "inducing", "all"),
    "model.vae_epochs": whole(1) | NULL,
    "model.warp": one_of("logit", None),
}


def check(requests: Iterable[RunRequest]) -> None:
    """Raise a UserError that names the first wrong value."""
    for problem in first_problems(requests).values():
        raise UserError(problem)


def first_problems(requests: Iterable[RunRequest]) -> dict[Path, str]:
    """What is wrong with the values of runs, by their folders; one sentence each."""
    with config_loader() as loader:
        found = ((request.folder, next(problems(request, loader), None)) for request in requests)
        return {folder: problem for folder, problem in found if problem is not None}


def check_pair(request: RunRequest) -> None:
    """Raise a UserError that says why the model of a run cannot be trained on its data."""
    for problem in pair_problems(request):
        raise UserError(problem)


def impossible_pairs(requests: Iterable[RunRequest]) -> dict[Path, str]:
    """Why models of runs cannot be trained on their data, by the folders of the runs; one sentence each."""
    found = ((request.folder, next(pair_problems(request), None)) for request in requests)
    return {folder: problem for folder, problem in found if problem is not None}


def rejected(requests: Sequence[RunRequest]) -> dict[Path, str]:
    """Why runs cannot start, by their folders: wrong values, or a model that cannot be trained on the data."""
    wrong = first_problems(requests)
    return {**wrong, **impossible_pairs(request for request in requests if request.folder not in wrong)}


def missing_files(dataset: Config) -> Iterator[str]:
    """A user's file that is not named, or not there."""
    if class_name(dataset["_target_"]) not in OF_USERS:
        return
    if dataset["train"] is None:
        yield "dataset.train is missing: name your file, as in dataset.train=path/to/file"
    for option, path in named(dataset):
        if not path.is_file():
            yield f"dataset.{option}={dataset[option]} does not exist (looked for {path.absolute()})"


def pair_problems(request: RunRequest) -> Iterator[str]:
    """One sentence for each fact of the data that rules out the model, as far as facts are known without the data."""
    data, model = request.config["dataset"], request.config["model"]
    yield from skipped_steps(request.config)
    yield from missing_files(data)
    found = known(data)
    if problem := size_problem(data, found):
        yield problem
    elif found is not None:
        yield from needs.problems(model, found)


def skipped_steps(config: Config) -> Iterator[str]:
    """16-mixed leaves out steps whose gradients overflow, which not every optimiser and objective allows."""
    if config["trainer"]["precision"] not in ("16-mixed", 16):
        return
    lbfgs = config["model"]["optimizer"]["algorithm"]["_target_"] == "torch.optim.LBFGS"
    for key, used in (("optimizer=lbfgs", lbfgs), ("model.geco", config["model"].get("geco") is not None)):
        if used:
            yield f"trainer.precision=16-mixed skips steps, which {key} does not allow: use bf16-mixed"


def problems(request: RunRequest, loader: ConfigLoader) -> Iterator[str]:
    """One sentence for each value that a run cannot have. Typed values come first, by the names they were typed by."""
    values, before = dict(leaves(request.config)), hydra_private.defaults(request.overrides, loader)
    defaults = {**dict(leaves(before)), **{key: {} for key in values if is_node(before, key)}}
    typed = [key_of(text) for text in request.overrides]
    broken = [key for key in dict.fromkeys([*typed, *RULES]) if key in values and not is_right(key, values, defaults)]
    for key in broken:
        yield f"{key}={shown(values[key])} must be {rule_of(key, defaults).allowed}"
    for text, key in zip(request.overrides, typed, strict=True):
        if text.startswith("+") and not is_read(key, request.config):
            yield f"{text} has no effect: there is no setting {key}"
    if not broken:
        yield from search_problems(request)


def is_right(key: str, values: dict[str, Any], defaults: dict[str, Any]) -> bool:
    """Whether a setting has a value that it may have."""
    return rule_of(key, defaults).holds(values[key])


def rule_of(key: str, defaults: dict[str, Any]) -> Rule:
    """The rule of a setting; without one, the type of its default."""
    return RULES.get(key) or BY_DEFAULT.get(type(defaults.get(key)), ANYTHING)


def leaves(config: Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested config by dotted name. A list is one value."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def is_node(config: Config, key: str) -> bool:
    """Whether a dotted name is that of a node, with settings below it."""
    node: Any = config
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return isinstance(node, dict)


def is_read(key: str, config: Config) -> bool:
    """Whether something is built from a node above an added setting; what is built checks its own arguments."""
    *parents, _ = key.split(".")
    nodes = [config := config.get(name) or {} for name in parents]
    return any("_target_" in node for node in nodes)


def search_problems(request: RunRequest) -> Iterator[str]:
    """A score of validation data that are not there: a search must not fall back on the test data."""
    metric, part = request.config["search"]["metric"], request.config["dataset"]["validation"]
    if metric not in (None, "objective") and part is None:
        yield (
            f"search.metric={metric} is a score of held-out training data, because the test data choose nothing: set "
            "dataset.validation too, such as dataset.validation=0.1"
        )
