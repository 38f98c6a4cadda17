"""New data are encoded as the training data were, whatever file they come in, and never written over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from src.data.batch import Batch
from src.data.facts import Facts
from src.evaluation import embedding
from src.evaluation.embedding import Embedding, embed, read, target, write
from src.models.posterior import Point, gaussian
from src.runs.errors import UserError
from tests.evaluation.subjects import Known

anndata = pytest.importorskip("anndata", reason='there is no anndata: pip install -e ".[tables]"')
pd = pytest.importorskip("pandas", reason='there is no pandas: pip install -e ".[tables]"')

FACTS = Facts((3,), 10, 10, scale="table", columns=("a", "b", "c"), centre=(1.0, 2.0, 3.0), spread=(1.0, 2.0, 4.0))
FRAME = pd.DataFrame(
    {"c": [3.0, 7.0], "other": ["x", "y"], "a": [1.0, 2.0], "b": [4.0, 0.0]}, index=pd.Index(["row1", "row2"])
)
X = [[0.0, 1.0, 0.0], [1.0, -1.0, 1.0]]  # the columns a, b and c, standardised


class Uncertain(Known):
    """q(z) with variances 1, 2, ..., so that each row has its own."""

    def encode(self, batch: Batch, seen: bool) -> Any:
        mean = super().encode(batch, seen).mean
        return gaussian(mean, 1 + batch.index[:, None].expand_as(mean).float())


def annotated() -> Any:
    numbers = FRAME[["c", "a", "b"]]
    data = anndata.AnnData(numbers.to_numpy(np.float32), FRAME[["other"]])
    data.var_names = list(numbers.columns)
    data.layers["twice"] = 2 * data.X
    return data


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], Path]:
    """The same two rows in a file of any format."""

    def save(name: str) -> Path:
        path, in_order = tmp_path / name, FRAME[["a", "b", "c"]].to_numpy()
        writers: dict[str, Callable[[], Any]] = {
            ".csv": lambda: FRAME.to_csv(path),
            ".gz": lambda: FRAME.to_csv(path),
            ".parquet": lambda: FRAME.to_parquet(path),
            ".h5ad": lambda: annotated().write_h5ad(path),
            ".npy": lambda: np.save(path, in_order),
            ".npz": lambda: np.savez(path, x=in_order),
        }
        writers[path.suffix]()
        return path

    return save


FILES = pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.h5ad", "t.npy", "t.npz"])


@FILES
def test_every_format_is_read_by_the_names_and_constants_of_the_checkpoint(
    source: Callable[[str], Path], name: str
) -> None:
    new = read(source(name), FACTS)
    assert new.split.all().x.tolist() == X and new.split.mask is None
    assert list(new.rows) == ([0, 1] if "np" in name else ["row1", "row2"])


def test_data_that_were_not_standardised_stay(source: Callable[[str], Path]) -> None:
    raw = Facts((3,), 10, 10, columns=("b", "a", "c"))
    assert read(source("t.csv"), raw).split.all().x.tolist() == [[4, 1, 3], [0, 2, 7]]


def test_a_layer_of_annotated_data(source: Callable[[str], Path]) -> None:
    new = read(source("t.h5ad"), Facts((1,), 10, 10, columns=("c",)), "twice")
    assert new.split.all().x.tolist() == [[6], [14]]


def test_empty_cells_are_missing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,,3\n2,3,4\n")
    new = read(tmp_path / "t.csv", FACTS)
    assert new.split.mask is not None and new.split.mask.tolist() == [[True, False, True], [True, True, True]]

    class Blind(Known):
        def encode(self, batch: Batch, seen: bool) -> Point:
            return Point(batch.x)

    with pytest.raises(UserError, match="row 1 of the new data cannot be encoded: values are missing"):
        embed(Blind(FACTS), new)


def test_what_does_not_fit_the_checkpoint(source: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("a,bb,c\n1,2,3\n")
    with pytest.raises(UserError, match=r"--embed .*short.csv has no column b; did you mean bb\?"):
        read(tmp_path / "short.csv", FACTS)
    with pytest.raises(UserError, match="trained on data without column names"):
        read(source("t.csv"), Facts((3,), 10, 10))
    with pytest.raises(UserError, match=r"rows of shape \(3,\), but the model was trained on \(1, 2, 2\)"):
        read(source("t.npy"), Facts((1, 2, 2), 10, 10))
    np.savez(tmp_path / "y.npz", y=np.zeros(3))
    with pytest.raises(UserError, match="holds y, but no x"):
        read(tmp_path / "y.npz", FACTS)
    with pytest.raises(UserError, match=r"nowhere.csv does not exist"):
        read(tmp_path / "nowhere.csv", FACTS)
    with pytest.raises(UserError, match="also needs the columns video, time"):
        embed(Known(Facts((3,), 10, 10, aux=("video", "time"))), read(source("t.npy"), FACTS))


def test_rows_are_unseen_and_keep_their_latents(source: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "CHUNK", 1)
    model = Uncertain(FACTS)
    model.if_seen = 9.0
    found = embed(model, read(source("t.csv"), FACTS))
    assert found.mean.tolist() == [row[:2] for row in X]
    np.testing.assert_allclose(found.variance, [[1, 1], [2, 2]], rtol=1e-6)
    assert model.encoded == [(False, 1), (False, 1)]


FOUND = Embedding(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[5.0, 6.0], [7.0, 8.0]]), ["row1", "row2"])
COLUMNS = {"z1": [1, 3], "z2": [2, 4], "var1": [5, 7], "var2": [6, 8]}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_of_latents(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "new" / f"z{ending}"
    write(FOUND, tmp_path / "t.csv", path)
    frame = pd.read_csv(path, index_col="index") if ending == ".csv" else pd.read_parquet(path)
    assert frame.to_dict("list") == COLUMNS and list(frame.index) == ["row1", "row2"]


def test_arrays_of_latents(tmp_path: Path) -> None:
    write(FOUND, tmp_path / "t.npy", tmp_path / "z.npz")
    with np.load(tmp_path / "z.npz") as arrays:
        assert sorted(arrays) == ["mean", "variance"] and arrays["variance"].tolist() == [[5, 6], [7, 8]]


@pytest.mark.parametrize("same", [False, True])
def test_annotated_data_keep_everything_and_get_the_latents(
    source: Callable[[str], Path], tmp_path: Path, same: bool
) -> None:
    path = source("t.h5ad")
    before, out = path.read_bytes(), path if same else tmp_path / "z.h5ad"
    write(FOUND, path, out)
    data = anndata.read_h5ad(out)
    assert data.obsm["X_gp"].tolist() == [[1, 2], [3, 4]] and data.obsm["X_gp_variance"].tolist() == [[5, 6], [7, 8]]
    assert data.obs["other"].tolist() == ["x", "y"] and "twice" in data.layers and list(data.obs_names) == FOUND.rows
    assert same or path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [("t.csv", "t.csv"), ("t.csv.gz", "t.csv"), ("t.parquet", "t.csv"), ("t.npy", "t.npz"), ("t.h5ad", "t.h5ad")],
)
def test_latents_go_to_the_run_s_folder_unless_told(tmp_path: Path, name: str, expected: str) -> None:
    assert target(tmp_path / name, None, tmp_path / "run") == tmp_path / "run" / "embeddings" / expected
    assert target(tmp_path / name, tmp_path / "z.parquet", tmp_path / "run") == tmp_path / "z.parquet"


def test_data_are_never_replaced_by_their_latents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "t.parquet", "t.npz"):
        with pytest.raises(UserError, match="would replace the data by their latents"):
            target(tmp_path / name, Path(name), tmp_path)
    assert target(tmp_path / "t.h5ad", Path("t.h5ad"), tmp_path) == Path("t.h5ad")  # only adds to them
    for out in ("z.txt", "z", "z.h5ad"):
        with pytest.raises(UserError, match=r"must end in .csv, .parquet or .npz, or in .h5ad if --embed does"):
            target(tmp_path / "t.csv", Path(out), tmp_path)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write(FOUND, tmp_path / "t.csv", tmp_path / "file" / "z.csv")
