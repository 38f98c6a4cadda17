"""New data through the command: what it writes is what the run's own model says of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from src.evaluate import main
from src.evaluation.task import latent_means
from src.training.experiment import load_model, make_data, run
from tests.configs import composed

pd = pytest.importorskip("pandas", reason='there is no pandas: pip install -e ".[tables]"')

SMALL = ["trainer.max_epochs=2", "dataset.batch_size=20", "active_set.size=8", "evaluation.active_sets=2"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training and a test table, and the outputs of a run on them."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    z = rng.normal(size=(50, 2))
    frame = pd.DataFrame(z @ rng.normal(size=(2, 4)) * [1, 10, 100, 1000] + [0, 5, 1e6, 1e9], columns=list("abcd"))
    frame["kind"] = np.where(z[:, 0] > 0, "right", "left")
    frame[:40].to_csv(folder / "train.csv", index=False)
    frame[40:].to_csv(folder / "test.csv", index=False)
    settings = [f"dataset.train={folder}/train.csv", f"dataset.test={folder}/test.csv", "dataset.label=kind"]
    config = composed("model=bayesian_sas", "dataset=table", *settings, *SMALL, f"paths.outputs={folder}/outputs")
    run(config, "bayesian_sas", "table")
    model: Any = load_model(the_run(folder))
    np.save(folder / "latents.npy", latent_means(model, make_data(config).test, seen=False).numpy())
    return folder


def the_run(table: Path) -> Path:
    return next(path for path in (table / "outputs").iterdir())


def test_a_run_on_a_table_leaves_its_figures_and_facts(table: Path) -> None:
    facts = load_model(the_run(table)).facts
    assert facts.columns == tuple("abcd") and facts.classes == ("left", "right") and len(facts.spread) == 4
    names = {path.name for path in (the_run(table) / "figures").iterdir()}
    stems = ("columns", "decoded_grid", "latent_map", "reconstructions")
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png")}


def test_new_data_are_encoded_as_the_test_data_were(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a copy of the test table with other columns before and between, and other rows' names."""
    frame = pd.read_csv(table / "test.csv")[["d", "b", "kind", "a", "c"]]
    frame.index = pd.Index([f"cell {i}" for i in range(10)], name="cell")
    frame.to_csv(table / "new.csv")
    main([str(the_run(table)), "--embed", str(table / "new.csv")])
    path = the_run(table) / "embeddings" / "new.csv"
    assert capsys.readouterr().out == f"latents of 10 rows: {path}\n"
    latents = pd.read_csv(path)
    np.testing.assert_allclose(latents[["z1", "z2"]], np.load(table / "latents.npy"), rtol=1e-5, atol=1e-6)
    assert list(latents.columns) == ["index", "z1", "z2", "var1", "var2"] and (latents[["var1", "var2"]] > 0).all(None)


def test_the_training_data_are_not_needed(table: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "train.csv"
    (table / "train.csv").rename(hidden)
    try:
        main([str(the_run(table)), "--embed", str(table / "test.csv"), "--out", str(tmp_path / "z.npz")])
    finally:
        hidden.rename(table / "train.csv")
    with np.load(tmp_path / "z.npz") as arrays:
        np.testing.assert_allclose(arrays["mean"], np.load(table / "latents.npy"), rtol=1e-5, atol=1e-6)


def test_new_rows_may_have_empty_cells(table: Path, tmp_path: Path) -> None:
    """The others are encoded as if there were none."""
    frame = pd.read_csv(table / "test.csv")
    frame.loc[[2, 5], "b"] = np.nan
    frame.to_csv(tmp_path / "holes.csv", index=False)
    main([str(the_run(table)), "--embed", str(tmp_path / "holes.csv"), "--out", str(tmp_path / "z.csv")])
    latents, complete = pd.read_csv(tmp_path / "z.csv")[["z1", "z2"]].to_numpy(), np.load(table / "latents.npy")
    holes = np.isin(np.arange(10), [2, 5])
    np.testing.assert_allclose(latents[~holes], complete[~holes], rtol=1e-5, atol=1e-6)
    assert np.isfinite(latents).all() and (latents[holes] != complete[holes]).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--embed", "test.csv", "evaluation.active_sets=3"], "has no effect on --embed"),
        (["--out", "z.csv"], "--out z.csv has an effect with --embed only"),
        (["--embed", "test.csv", "--out", "test.csv"], "would replace the data by their latents"),
        (["--embed", "nowhere.csv"], "nowhere.csv does not exist"),
    ],
)
def test_what_the_command_refuses(
    table: Path, arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table)
    with pytest.raises(SystemExit, match=sentence):
        main([str(the_run(table)), *arguments])


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not the folder of a finished run"):
        main([str(tmp_path), "--embed", "x.csv"])
