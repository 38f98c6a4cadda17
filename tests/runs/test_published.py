"""The papers' tables: every mistake in the file is named, and a run finds its published values."""

import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from src.runs import published
from src.runs.errors import UserError
from src.runs.identity import dotted
from src.runs.published import Place, name_of_class, numbers, places, published_values, table_of
from tests.configs import composed
from tests.report.handmade import config_of

WITHOUT_SD = {  # tables of papers that print one value per cell
    *("autogp", "autogp_others", "autogp_kernels"),
    "regularised_toy",
    "anuran",
    "anuran_fixed",
    "anuran_dimensions",
    "flights",
    "drivface",
}

NAMES = {"model": {"sas": "SAS-GP", "vae": "VAE"}, "dataset": {"mnist": "MNIST"}}
SPEC = {
    "title": "Errors by inducing points",
    "source": "A paper",
    "rows": {"model.num_inducing": [50, 100], "metric": ["rmse", "mae"]},
    "columns": {"model": ["sas", "vae"]},
    "fixed": {"dataset": "mnist"},
    "published": {50: {"rmse": {"sas": "0.2 ± 0.1", "vae": 0.25}}, 100: {"rmse": {"sas": "0.1 ± 0.1"}}},
}


def test_values_are_nested_by_the_levels_of_rows_then_columns() -> None:
    table = table_of("mine", SPEC, NAMES)
    place: Place = {"model.num_inducing": 50, "metric": "rmse", "model": "sas", "dataset": "mnist"}
    assert table.place({"model.num_inducing": 50, "metric": "rmse"}, {"model": "sas"}) == place
    assert table.published_at(place) == "0.2 ± 0.1"
    assert table.published_at({**place, "model": "vae"}) == "0.25"
    assert table.published_at({**place, "metric": "mae"}) is None
    assert table.published_at({**place, "model.num_inducing": 70}) is None


def test_runs_belong_by_fixed_values_and_filters_where_a_missing_setting_is_null() -> None:
    only = {"model.bound": ["svi", "collapsed"], "dataset.max_train": None}
    table = table_of("mine", SPEC | {"only": only}, NAMES)
    run: Place = {"model": "sas", "dataset": "mnist", "model.bound": "svi"}
    assert table.takes(run) and table.takes({**run, "model.bound": "collapsed"})
    assert not table.takes({**run, "model.bound": "other"})
    assert not table.takes({**run, "dataset": "fmnist"})
    assert not table.takes({**run, "dataset.max_train": 100})


def test_a_reason_holds_where_all_its_levels_match() -> None:
    reason = {"metric": ["rmse", "mae"], "model.num_inducing": 50, "because": "Another quantity."}
    table = table_of("mine", SPEC | {"not_comparable": [reason]}, NAMES)
    place: Place = {"model.num_inducing": 50, "metric": "rmse", "model": "sas", "dataset": "mnist"}
    assert table.caveat_at(place) == "Another quantity."
    assert table.caveat_at({**place, "model.num_inducing": 100}) is None


def test_some_of_the_runs_that_a_table_takes_can_be_left_out() -> None:
    left_out = [{"model": "sas", "model.bound": None}, {"model.bound": ["svi", "exact"]}]
    table = table_of("mine", SPEC | {"without": left_out}, NAMES)
    place: Place = {"dataset": "mnist", "model": "sas", "model.bound": "collapsed"}
    assert table.takes(place) and table.takes({**place, "model": "vae", "model.bound": None})
    assert not table.takes({**place, "model.bound": None}) and not table.takes({**place, "model.bound": "svi"})


def test_the_long_name_of_the_active_set_is_the_same_level() -> None:
    table = table_of("mine", SPEC | {"rows": {"model.active_set": [100], "metric": ["rmse"]}, "published": {}}, NAMES)
    assert list(table.axes) == ["active_set", "metric", "model"]


def test_a_list_is_compared_as_text() -> None:
    rows: dict[str, Any] = {"model.encoder.hidden": [[512, 256]], "metric": ["rmse"]}
    table = table_of("mine", SPEC | {"rows": rows, "published": {}}, NAMES)
    assert published.settings_of({"model": {"encoder": {"hidden": [512, 256]}}}) == {
        "model.encoder.hidden": table.rows["model.encoder.hidden"][0]
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"speed": [1], "metric": ["rmse"]}}, "speed is not a level"),
        ({"rows": {"seed": [1], "metric": ["rmse"]}}, "seed is not a level"),
        ({"only": {"optimizer.lr": 1}}, "optimizer.lr is not a level"),
        ({"only": {"metric": "rmse"}}, "metric cannot be among its keys"),
        ({"without": [{"model": "sass"}]}, "the model sass is not named under models"),
        ({"without": [{"metric": "rmse"}]}, "metric cannot be among its keys"),
        ({"row": {}}, "there is no key row"),
        ({"columns": {}}, "needs rows, columns"),
        ({"rows": {"active_set": [100]}, "published": {}}, "the level metric"),
        ({"fixed": {"dataset": "mnist", "model": "sas"}}, "the level model is used twice"),
        ({"fixed": {"dataset": ["mnist", "mnist"]}}, "dataset in fixed must have one value, not 2"),
        ({"columns": {"model": ["sas", "vea"]}}, "the model vea is not named under models"),
        ({"fixed": {"dataset": "minst"}}, "the dataset minst is not named under datasets"),
        ({"only": {"model": "sass"}}, "the model sass is not named under models"),
        ({"published": {60: {}}}, "published has model.num_inducing 60, which is not in the table"),
        ({"published": {50: {"rmse": {"vaes": 1}}}}, "published has model vaes, which is not in the table"),
        ({"published": {50: 0.2}}, "published has 0.2 where it needs one entry per metric"),
        ({"published": {50: {"rmse": {"sas": "0.2 +- 0.1"}}}}, "the published value 0.2 .- 0.1 is neither"),
        ({"not_comparable": [{"metric": "rmse"}]}, "has no key because"),
        (
            {"not_comparable": [{"active_set": 1, "because": "x"}]},
            "active_set in not_comparable is not one",
        ),
    ],
)
def test_a_mistake_is_named_with_its_table(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^table mine: .*{message}"):
        table_of("mine", SPEC | change, NAMES)


def test_a_choice_leaves_some_values_of_any_level() -> None:
    table = table_of("mine", SPEC, NAMES).narrowed({"model.num_inducing": ["100"], "model": ["vae"]})
    assert [table.place(r, c) for r in places(table.rows) for c in places(table.columns)] == [
        {"model.num_inducing": 100, "metric": metric, "model": "vae", "dataset": "mnist"} for metric in ("rmse", "mae")
    ]
    with pytest.raises(UserError, match=r"table mine: there is no model\.num_inducing=70"):
        table.narrowed({"model.num_inducing": ["70"]})


@pytest.mark.parametrize(("text", "value"), [("0.255 ± 0.098", (0.255, 0.098)), ("-1.5", (-1.5, None))])
def test_a_published_value_is_a_mean_with_or_without_an_sd(text: str, value: tuple[float, float | None]) -> None:
    assert numbers(text) == value


def test_a_run_finds_its_values_their_tables_and_caveats() -> None:
    config = config_of("bayesian_sas", "mnist", 0, 400, 20)
    values, notes = published_values("bayesian_sas", "mnist", config, ["rmse", "mae", "nlpd", "accuracy_1nn", "epochs"])
    expected = {
        "rmse": "0.199 ± 0.002",
        "mae": "0.096 ± 0.001",
        "nlpd": "0.217 ± 0.002",
        "accuracy_1nn": "0.63 ± 0.022",
    }
    assert values == expected
    blank, first, second, caveat = notes
    assert blank == "" and "Table 1, there" in first and "Table 2" in second
    assert caveat.startswith("nlpd: ") and "absolute value" in caveat
    assert published_values("bayesian_sas", "mnist", config)[0].keys() == {*expected, "rmse_mixture", "mae_mixture"}


def test_a_run_of_no_table_has_no_values_and_no_notes() -> None:
    for model, size, settings in (
        ("bayesian_sas", 300, {}),
        ("mine", None, {}),
        ("bayesian_sas", 400, {"latent_dim": 5}),
    ):
        assert published_values(model, "cifar10", config_of(model, "cifar10", 0, size, 20, **settings)) == ({}, [])


def test_a_few_values_typed_again_from_the_papers() -> None:
    tables = published.tables()

    def value(name: str, **place: Any) -> str | None:
        return tables[name].published_at(place)

    assert value("table1", dataset="cifar10", metric="nlpd", model="sas", active_set=400) == "0.332 ± 0.189"
    assert value("table1", dataset="fmnist", metric="rmse", model="bayesian_sas", active_set=200) == "0.188 ± 0.020"
    assert value("table2", model="vae", dataset="fmnist") == "0.58 ± 0.008"
    assert value("rotated_mnist", model="casale_gp_vae", metric="mse_sample") == "0.0370 ± 0.0012"
    place: Place = {"model.bound": "svi", "model.regularisation": None, "metric": "askl"}
    assert value("anuran", **place) == "31.9826"
    place = {"model.latent_dim": 10, "model.regularisation": 1000, "metric": "fit_rmse"}
    assert value("anuran_dimensions", **place) == "0.0319"


def test_published_values_have_an_sd_where_the_paper_has_one_and_the_tables_have_as_many_as_the_papers() -> None:
    counts = {}
    for name, table in published.tables().items():
        cells = [table.place(row, column) for row in places(table.rows) for column in places(table.columns)]
        found = [text for place in cells if (text := table.published_at(place))]
        counts[name] = len(found)
        if name in WITHOUT_SD:
            assert all(sd is None for _, sd in map(numbers, found))
            continue
        printed = [text for text in found if not text.endswith("± 0.00")]  # as Bui & Turner round it
        assert all(sd is not None and mean > sd > 0 for mean, sd in map(numbers, printed))
        assert all(sd == 0 for _, sd in map(numbers, set(found) - set(printed)))
    assert counts == {
        "table1": 54,
        "table1_mixture": 36,
        "cifar10_subset": 12,
        "table2": 6,
        "longer": 6,
        "million": 0,
        "rotated_mnist": 6,
        "casale_phases": 1,
        "rotated_mnist_late": 3,
        "object_starts": 4,
        "inducing_points": 0,
        "batch_sizes": 0,
        "kernel_rank": 0,
        "rotated_digits": 0,
        "moving_ball": 0,
        "ball_inducing": 0,
        "textures": 16,
        "binary": 0,
        "warped": 0,
        "hidden_pixels": 0,
        "hidden_values": 0,
        "amortisation": 0,
        "geodesics": 0,
        "autogp": 2,
        "autogp_others": 8,
        "autogp_kernels": 2,
        "prediction": 0,
        "regularised_toy": 6,
        "anuran": 8,
        "anuran_fixed": 4,
        "anuran_dimensions": 12,
        "flights": 12,
        "drivface": 8,
    }


def test_the_settings_of_the_tables_exist() -> None:
    """A misspelt setting would only leave a table empty."""
    known = yaml.safe_load(Path("docs/results/runs.json").read_text())
    models = ("sas", "autogp", "bayesian_gplvm", "sparse_regression")
    now = [composed(f"model={name}") for name in models]
    now += [composed(f"model={name}", "dataset=rotated_mnist") for name in ("svgp_vae", "casale_gp_vae")]
    settings = {key for config in (*now, *(run["config"] for run in known)) for key, _ in dotted(config)}
    specs = published.tables().values()
    used = {level for table in specs for level in (*table.axes, *table.fixed, *table.only, *chain(*table.without))}
    assert {level for level in used if "." in level} <= settings


@pytest.mark.parametrize("override", ["dataset.binary=true", "model.warp=logit", "model.likelihood=bernoulli"])
def test_bits_and_warped_images_have_no_published_values(override: str) -> None:
    """The papers score grey images with Gaussian noise."""
    command = ("model=sas", "dataset=mnist", "active_set=a400")
    assert published_values("sas", "mnist", composed(*command))[0]
    assert published_values("sas", "mnist", composed(*command, override)) == ({}, [])


def test_published_values_need_no_torch() -> None:
    code = "import sys, src.runs.published as p; p.tables(); assert not {'torch', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_of_the_documentation_is_a_table() -> None:
    text = Path("docs/report.md").read_text().partition("    inducing:\n")[2].partition("\nA setting")[0]
    names = {"model": {"bayesian_gplvm": ""}, "dataset": {"mnist": ""}}
    table = table_of("inducing", yaml.safe_load(text), names)
    place: Place = {"model.num_inducing": 50, "metric": "mae", "model.bound": "svi"}
    assert table.published_at(place) == "0.11" and table.caveat_at(place) == "The paper reports the median there."


@pytest.mark.parametrize(
    ("name", "label"),
    [("BayesianSAS", "Bayesian SAS-GP"), ("SVGPVAE", "SVGP-VAE"), ("AutoGP", "AutoGP"), ("Own", "Own")],
)
def test_classes_have_the_names_of_the_tables(name: str, label: str) -> None:
    assert name_of_class(name) == label
