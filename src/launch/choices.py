"""Choices without effect: `model=vae kernel=matern52` must not look as if the kernel mattered.

A choice has no effect if the config composed without it has the same fingerprint although the chosen value differs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from omegaconf import OmegaConf

from src.launch import cells
from src.launch.cells import Sweep
from src.launch.cli import CONF
from src.launch.hydra_private import ConfigLoader, config_loader, key_of
from src.runs import identity
from src.runs.contents import large
from src.runs.errors import UserError
from src.runs.identity import Config
from src.runs.request import RunRequest

Place = tuple[str, str, str]  # key of a choice, model, dataset


def check_run(request: RunRequest) -> None:
    """Reject a single run if one of its choices has no effect."""
    with config_loader() as loader:
        for choice in choices(request):
            if has_effect([request], key_of(choice), loader) is False:
                raise UserError(complaint(choice, [request]))


def check_sweep(sweep: Sweep) -> list[str]:
    """Reject a sweep if a value given on the command line has no effect on any cell.

    Returns one line for each choice that only some of the cells ignore.
    """
    effects = effects_of(sweep)
    for choice, requests in cells_by_choice(sweep).items():
        found = [effects[key_of(choice), cell.model, cell.dataset] for cell in requests]
        if is_given(choice, sweep) and False in found and True not in found:
            ignoring = [cell for cell, effect in zip(requests, found, strict=True) if effect is False]
            raise UserError(complaint(choice, ignoring))
    return remarks(sweep, {place for place, effect in effects.items() if effect is False})


def choices(request: RunRequest) -> list[str]:
    """The overrides of a run that count only if the model uses them."""
    return [text for text in request.overrides if key_of(text).partition(".")[0] in identity.CHOSEN_FOR_THE_MODEL]


def cells_by_choice(sweep: Sweep) -> dict[str, list[RunRequest]]:
    """The cells for which each choice is made."""
    found = defaultdict(list)
    for cell in sweep.combinations:
        for choice in choices(cell):
            found[choice].append(cell)
    return found


def is_given(choice: str, sweep: Sweep) -> bool:
    """Whether a choice was typed, rather than read from the sweep's file."""
    return key_of(choice) in {key_of(text) for text in sweep.given}


def effects_of(sweep: Sweep) -> dict[Place, bool | None]:
    """Whether each choice has an effect, by its key, model and dataset; None if it only repeats a default."""
    effects: dict[Place, bool | None] = {}
    with config_loader() as loader:
        for key, alike in siblings(sweep):
            place = key, alike[0].model, alike[0].dataset
            if not effects.get(place):
                effect = has_effect(alike, key, loader)
                effects[place] = effects.get(place) if effect is None else effect
    return effects


def siblings(sweep: Sweep) -> Iterator[tuple[str, list[RunRequest]]]:
    """Each key that is chosen, with the cells that differ in it only."""
    found = defaultdict(list)
    for cell in sweep.combinations:
        for key in dict.fromkeys(map(key_of, choices(cell))):
            found[key, without(cell, key)].append(cell)
    return ((key, alike) for (key, _), alike in found.items())


def has_effect(alike: list[RunRequest], key: str, loader: ConfigLoader) -> bool | None:
    """Whether a choice changes the numbers of cells that differ in it only; None if their values are the same.

    A cell that is alone is compared with the run composed without the choice.
    """
    first, others = alike[0], alike[1:]
    try:
        others = others or [cells.compose(without(first, key), loader)]
    except UserError:  # another choice builds on this one, and is checked itself
        return True
    if any(other.folder != first.folder for other in others):
        return True
    return None if all(values(other) == values(first) for other in others) else False


def values(request: RunRequest) -> Config:
    """The settings of a run, used or not, that could change its numbers."""
    return identity.without(request.config, identity.CANNOT_CHANGE_NUMBERS)


def without(request: RunRequest, key: str) -> tuple[str, ...]:
    """The overrides of a run except those of one key."""
    return tuple(text for text in request.overrides if key_of(text) != key)


def complaint(choice: str, requests: Iterable[RunRequest]) -> str:
    """One sentence that names a choice without effect and the reason."""
    group = key_of(choice).partition(".")[0]
    reasons = dict.fromkeys(reason(request, group) for request in requests)
    return f"{choice} has no effect: {'; '.join(reasons)}"


def reason(request: RunRequest, group: str) -> str:
    """Why a model ignores the options of a group."""
    if request.config["model"].get(group) is None:
        return f"model={request.model} does not use {group}"
    origin = f" from {shown(request)}" if pair_sets(request, f"model.{group}") else ""
    return f"model={request.model} has its own {group}{origin} (override model.{group} to change it)"


def remarks(sweep: Sweep, ignored: set[Place]) -> list[str]:
    """One line for each choice that a part of the sweep ignores: which part, and how many cells are one run."""
    lines = []
    for (key, model), places in groupby(sorted(ignored), key=lambda place: place[:2]):
        datasets = {dataset for *_, dataset in places}
        of_model = [cell for cell in sweep.combinations if cell.model == model]
        if {cell.dataset for cell in of_model} <= datasets:
            lines.append(remark(key, f"model={model}", of_model))
            continue
        for name in sorted(datasets):
            part = [cell for cell in of_model if cell.dataset == name]
            lines.append(remark(key, f"model={model} dataset={name}", part))
    return lines


def remark(key: str, where: str, part: list[RunRequest]) -> str:
    """`active_set has no effect on model=vae: 3 cells are one run`."""
    runs = len({without(cell, key) for cell in part})
    merged = f": {len(part)} cells are {'one run' if runs == 1 else f'{runs} runs'}" if runs < len(part) else ""
    return f"{key} has no effect on {where}{merged}"


def pair_remarks(requests: Iterable[RunRequest]) -> list[str]:
    """One line for each file of conf/pair that applies."""
    return list(dict.fromkeys(f"Settings from {shown(request)} apply." for request in requests if has_pair(request)))


def file_remarks(requests: Iterable[RunRequest]) -> list[str]:
    """One line for each file of the user that is too large to count by all of its content."""
    return list(dict.fromkeys(line for request in requests for line in large(request.config["dataset"])))


def has_pair(request: RunRequest) -> bool:
    """Whether conf/pair has settings for the model and the dataset of a run."""
    return pair_file(request).exists()


def pair_sets(request: RunRequest, name: str) -> bool:
    """Whether the run's file of conf/pair sets a value."""
    return has_pair(request) and OmegaConf.select(OmegaConf.load(pair_file(request)), name) is not None


def pair_file(request: RunRequest) -> Path:
    """The file of conf/pair for the model and the dataset of a run, which may not exist."""
    return CONF / "pair" / f"{request.pair}.yaml"


def shown(request: RunRequest) -> str:
    """The path of the run's file of conf/pair, as messages show it."""
    return pair_file(request).relative_to(CONF.parent).as_posix()
