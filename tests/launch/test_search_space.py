"""What a search varies: Hydra's grammar in Optuna's terms, and wrong options before any work."""

from typing import Any

import pytest

from src.launch.hydra_private import Span
from src.launch.search_space import Options, Space, distribution, space_of
from src.runs import trials
from src.runs.errors import UserError
from tests.configs import composed

OPTIONS: dict[str, Any] = {
    "study_name": None,
    "storage": "sqlite://",
    "sampler": "tpe",
    "seed": None,
    "pruner": "median",
    "startup_trials": 5,
    "warmup_epochs": None,
    "report_every": None,
    "n_trials": 20,
    "n_jobs": 1,
    "params": None,
}


@pytest.mark.parametrize(
    ("override", "varied"),
    [
        ("optimizer.lr=tag(log,interval(1e-4,1e-2))", Span(1e-4, 1e-2, None, True)),
        ("model.noise=interval(0.1,1)", Span(0.1, 1, None, False)),
        ("model.latent_dim=range(2,6)", Span(2, 5, 1, False)),
        ("model.latent_dim=range(2,9,3)", Span(2, 8, 3, False)),
        ("model.latent_dim=int(interval(2,6))", Span(2, 6, None, False)),
        ("kernel=rbf,matern52", ["rbf", "matern52"]),
        ("encoder.hidden=[64],[64,32]", ["[64]", "[64,32]"]),
        ("+model.new=choice(1,2)", ["1", "2"]),
    ],
)
def test_what_is_varied(override: str, varied: object) -> None:
    space = space_of(["model=sas", override, "seed=1"])
    assert space.varied == {override.partition("=")[0]: varied}
    assert space.fixed == ["model=sas", "seed=1"]


def test_the_last_override_of_a_key_counts() -> None:
    space = space_of(["optimizer.lr=interval(1,2)", "model.latent_dim=2,3", "optimizer.lr=0.1"])
    assert space.fixed == ["optimizer.lr=0.1"] and list(space.varied) == ["model.latent_dim"]


def test_a_search_needs_something_to_vary() -> None:
    with pytest.raises(UserError, match=r"a search needs a setting to vary, such as 'optimizer\.lr=tag"):
        space_of(["model=sas", "seed=1"])


def test_the_cell_of_a_trial_has_its_values() -> None:
    cell = space_of(["model=vae", "optimizer.lr=interval(1e-4,1e-2)"]).cell({"optimizer.lr": 1.5e-05})
    assert cell.model == "vae" and cell.config["model"]["optimizer"]["lr"] == 1.5e-05
    assert cell.config["model"] == composed("model=vae", "optimizer.lr=1.5e-05")["model"]


def test_both_ends_of_the_space_are_checked() -> None:
    for bad in ("optimizer.lr=interval(-1,1)", "active_set.size=range(2,600)", "seed=0,1,x"):
        with pytest.raises(UserError, match="must be"):
            space_of([bad]).check()
    with pytest.raises(UserError, match="kernel=matern52 has no effect: model=vae does not use kernel"):
        space_of(["model=vae", "kernel=rbf,matern52"]).check()
    space_of(["model=sas,vae", "active_set.size=range(2,60)"]).check()


def test_a_study_is_named_by_all_that_counts() -> None:
    def name(*overrides: str) -> str:
        return space_of(["optimizer.lr=interval(1e-4,1e-2)", *overrides]).name()

    assert name().startswith("sas-digits-") and name("model=vae", "dataset=mnist").startswith("vae-mnist-")
    assert name() == name("logger=tensorboard") == name("search.metric=objective")
    others = [
        "seed=1",
        "trainer.max_epochs=3",
        "search.metric=rmse",
        "optimizer.lr=interval(1e-4,1e-1)",
        "kernel=rbf,matern52",
    ]
    assert len({name(), *map(name, others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("sampler", "cma", "tpe or gp or random"),
        ("pruner", "hyperband", "median or null"),
        ("n_trials", 0, "a whole number of at least 1"),
        ("n_jobs", -1, "a whole number of at least 1"),
        ("seed", "x", "a whole number of at least 0, or null"),
        ("report_every", 0, "a whole number of at least 1, or null"),
    ],
)
def test_wrong_options_are_one_sentence(option: str, value: object, allowed: str) -> None:
    Options(**OPTIONS)
    with pytest.raises(UserError, match=rf"hydra\.sweeper\.{option}={value} must be {allowed}$"):
        Options(**OPTIONS | {option: value})


def test_runs_report_to_their_trials_only_if_they_can_be_pruned(tmp_path: Any) -> None:
    Options(**OPTIONS | {"pruner": None}).assign(tmp_path / "a", "study", 3)
    assert trials.assigned(tmp_path / "a") is None
    Options(**OPTIONS).assign(tmp_path / "a", "study", 3)
    assert trials.assigned(tmp_path / "a") == trials.Trial("sqlite://", "study", 3, 5, None, None)
    trials.release(tmp_path / "a")
    trials.release(tmp_path / "a")
    assert trials.assigned(tmp_path / "a") is None


@pytest.mark.optuna
def test_whole_numbers_stay_whole_and_both_ends_belong() -> None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    assert distribution("a", Span(2, 8, 3, False)) == IntDistribution(2, 8, step=3)
    assert distribution("a", Span(1, 64, None, True)) == IntDistribution(1, 64, log=True)
    assert distribution("a", Span(1e-4, 1e-2, None, True)) == FloatDistribution(1e-4, 1e-2, log=True)
    assert distribution("a", Span(0.1, 1, 0.1, False)) == FloatDistribution(0.1, 1, step=0.1)
    assert distribution("a", ["x", "y"]) == CategoricalDistribution(["x", "y"])
    assert Space([], {"a": ["x"]}).distributions() == {"a": CategoricalDistribution(["x"])}
    with pytest.raises(UserError, match=r"^optimizer\.lr cannot be searched: "):
        distribution("optimizer.lr", Span(0.0, 1.0, None, True))
