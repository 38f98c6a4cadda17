"""What the documents say of results is what the stored runs say."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from src.report import archive
from src.report.fill import fill, table_of
from src.report.records import Run
from src.report.tables import Cell

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
IN_FULL = ["mnist", "fmnist"]
Cells = Callable[..., list[Cell]]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return archive.read(RESULTS / "runs.json")


@pytest.fixture(scope="module")
def gp_vaes() -> list[Run]:
    return archive.read(RESULTS / "gp_vae.json")


@pytest.fixture(scope="module")
def cells(runs: list[Run]) -> Cells:
    return lambda name, **choice: table_of(name, runs, choice).cells


def differences(found: list[Cell]) -> list[float]:
    """Ours less the published means."""
    return [cell.difference for cell in found if cell.difference is not None]


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_the_tables_of_the_documents_are_those_of_the_stored_runs(name: str, runs: list[Run]) -> None:
    assert fill(ROOT / name, runs) == (ROOT / name).read_text()


@pytest.mark.parametrize("name", ["regularised", "gp_vae"])
def test_the_tables_of_a_page_are_those_of_its_own_stored_runs(name: str) -> None:
    kept, page = archive.read(RESULTS / f"{name}.json"), ROOT / "docs" / f"{name}.md"
    assert {run.status for run in kept} == {"done"}
    assert fill(page, kept) == page.read_text()


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/regularised.md", "docs/gp_vae.md"])
def test_the_pictures_are_there_and_small(name: str) -> None:
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / name).read_text())
    assert links and all((ROOT / name).parent.joinpath(link).is_file() for link in links)
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 2_000_000


def test_every_stored_run_is_finished_and_tells_which_code_it_ran(runs: list[Run]) -> None:
    assert {run.status for run in runs} == {"done"}
    assert all(re.fullmatch("[0-9a-f]{40}", str(run.record["git"])) for run in runs)


def test_sas_is_below_the_published_errors_in_every_cell(cells: Cells) -> None:
    found = differences(cells("table1", dataset=IN_FULL, model=["sas"], metric=["rmse", "mae"]))
    assert len(found) == 12 and max(found) < 0


def test_bayesian_sas_is_below_the_published_rmse_on_fashion_mnist_and_near_it_on_mnist(cells: Cells) -> None:
    choice = {"model": ["bayesian_sas"], "metric": ["rmse"]}
    fashion, digits = (differences(cells("table1", dataset=[dataset], **choice)) for dataset in ("fmnist", "mnist"))
    assert len(fashion) == len(digits) == 3 and max(fashion) < 0 and max(digits) <= 0.004


def test_the_mixture_is_below_the_published_errors_in_every_cell(cells: Cells) -> None:
    found = differences(cells("table1_mixture", dataset=IN_FULL))
    assert len(found) == 24 and max(found) < 0


def test_the_nearest_neighbours_of_bayesian_sas(cells: Cells) -> None:
    on_mnist, on_fashion = (cell.mean for cell in cells("table2", model=["bayesian_sas"]))
    assert on_mnist is not None and on_mnist >= 0.73
    assert on_fashion is not None and on_fashion >= 0.64


def test_gp_vaes_are_within_or_below_the_published_errors_of_rotated_mnist(gp_vaes: list[Run]) -> None:
    choice = {"model": ["casale_gp_vae", "svgp_vae"], "metric": ["mse_sample"]}
    casale, sparse = table_of("rotated_mnist", gp_vaes, choice).cells
    assert (len(casale.values), len(sparse.values)) == (5, 3)
    assert casale.mean is not None and casale.mean < 0.0370 + 0.0012
    assert max(sparse.values) < 0.0251 + 0.0005


def test_the_density_of_a_clamped_normal_is_shown_for_no_model_of_bits(runs: list[Run], gp_vaes: list[Run]) -> None:
    bits = [run for run in [*runs, *gp_vaes] if run.config["model"].get("likelihood") == "bernoulli"]
    assert {run.dataset for run in bits} == {"moving_ball", "mnist"} and all("nlpd" not in run.metrics for run in bits)
