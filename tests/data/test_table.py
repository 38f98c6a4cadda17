"""A person's own tables: which columns are used, what is missing, and a clear sentence for what does not fit."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from src.data.batch import Split
from src.data.facts import Target
from src.data.sheets import read_sheet
from src.data.table import Table, in_order
from src.runs.errors import UserError

anndata = pytest.importorskip("anndata", reason='there is no anndata: pip install -e ".[tables]"')
pd = pytest.importorskip("pandas", reason='there is no pandas: pip install -e ".[tables]"')
scipy_sparse = pytest.importorskip("scipy.sparse")

FRAME = pd.DataFrame(
    {
        "height": [1.0, 2.0, 4.0, 7.0, 3.0],
        "mass": [10.0, 30.0, 20.0, 50.0, 40.0],
        "count": [3, 1, 4, 1, 5],
        "name": ["a", "b", "c", "d", "e"],
        "group": ["x10", "x9", "x10", "x9", "x9"],
        "age": [0.5, 1.5, 2.5, 3.5, 4.5],
    }
)
Save = Callable[..., str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a frame, by the ending of its name, or text; returns the path."""

    def write(name: str, content: Any = FRAME, **options: Any) -> str:
        path = tmp_path / name
        if isinstance(content, str | bytes):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        elif name.endswith(".parquet"):
            content.to_parquet(path, **options)
        elif name.endswith(".h5ad"):
            content.write_h5ad(path)
        else:
            content.to_csv(path, **{"index": False, **options})
        return str(path)

    return write


def load(train: str | None, **options: Any) -> tuple[Table, Split, Split]:
    """The raw values of a table."""
    data = Table(train, batch_size=1, **{"standardise": False, **options})
    return data, *data.load()


def whole(train: str, **options: Any) -> tuple[Table, Split]:
    """All rows of a table as its training part."""
    data, split, _ = load(train, test=train, **options)
    return data, split


def annotated(sparse: bool = False) -> Any:
    x = FRAME[["height", "mass", "count"]].to_numpy(np.float32)
    data = anndata.AnnData(
        scipy_sparse.csr_matrix(x) if sparse else x, FRAME[["group", "age"]].set_index(FRAME["name"])
    )
    data.var_names = ["height", "mass", "count"]
    data.layers["doubled"] = 2 * data.X
    return data


def test_all_numeric_columns_but_target_and_label_are_observed(save: Save, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    data, split = whole(save("t.csv"), target="age")
    assert data.columns == ("height", "mass", "count") and split.storage.dtype == torch.float32 and split.mask is None
    assert np.array_equal(split.all().x, FRAME[["height", "mass", "count"]])
    assert split.y is not None and split.y.tolist() == [[0.5], [1.5], [2.5], [3.5], [4.5]]
    assert "not used: name, group" in caplog.text
    data, split = whole(save("t.csv"), label="count")
    assert data.columns == ("height", "mass", "age")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.v2.csv", "t.parquet"])
def test_every_format_holds_the_same_table(save: Save, name: str) -> None:
    path = save(name, **({"sep": "\t"} if name == "t.tsv" else {}))
    data, split = whole(path, columns=["mass", "age"], label="group")
    assert data.columns == ("mass", "age") and np.array_equal(split.all().x, FRAME[["mass", "age"]])
    assert data.classes == ("x9", "x10") and split.y is not None and split.y.tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("sparse", [False, True])
def test_annotated_data(save: Save, sparse: bool) -> None:
    path = save("t.h5ad", annotated(sparse))
    data, split = whole(path, label="group")
    assert data.columns == ("height", "mass", "count") and data.classes == ("x9", "x10")
    assert np.array_equal(split.all().x, FRAME[["height", "mass", "count"]])
    _, split = whole(path, columns=["count", "height"], target=["age", "mass"], layer="doubled")
    assert np.array_equal(split.all().x, 2 * FRAME[["count", "height"]])
    assert split.y is not None and split.y.tolist()[1] == [1.5, 60.0]
    data, split = whole(path, label="index")
    assert split.y is not None and [data.classes[i] for i in split.y] == list("abcde")


def test_the_facts_of_a_table(save: Save) -> None:
    data = Table(save("t.csv"), columns=["mass", "height"], target=["age", "count"], batch_size="full")
    data.setup()
    facts = data.facts
    assert facts.shape == (2,) and facts.columns == ("mass", "height") and facts.scale == "table" and facts.complete
    assert facts.target == Target("real", 2) and facts.classes == () and not facts.binary
    kept = data.train.all().x
    torch.testing.assert_close(kept.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(kept.square().mean(0), torch.ones(2))
    assert len(data.train) == 4 and len(data.test) == 1 and len(facts.centre) == len(facts.spread) == 2


def test_empty_cells_are_missing(save: Save) -> None:
    path = save("t.csv", "a,b,c\n1,,x\n2,5,\nNA,6,z\n")
    _, split = whole(path)
    assert split.mask is not None and split.mask.tolist() == [[True, False], [True, True], [False, True]]
    assert split.all().x[split.mask].tolist() == [1, 2, 5, 6]
    frame = pd.DataFrame({"a": pd.array([1, None, 3], "Int64"), "b": [True, False, True]})
    _, split = whole(save("t.parquet", frame))
    assert split.mask is not None and split.mask.tolist() == [[True, True], [False, True], [True, True]]


def test_bits_are_recognised_unless_they_are_standardised(save: Save) -> None:
    path = save("t.csv", "a,b\n1,0\n0,1\n1,1\n0,0\n")
    assert whole(path)[0].binary and not whole(path, standardise=True)[0].binary


def test_columns_are_found_by_name_in_the_test_file(save: Save) -> None:
    train, test = save("train.csv"), save("test.csv", FRAME[FRAME.columns[::-1]].iloc[:2])
    data, _, split = load(train, test=test, label="group")
    assert np.array_equal(split.all().x, FRAME[list(data.columns)].iloc[:2])
    assert split.y is not None and split.y.tolist() == [1, 0]


def test_a_first_column_without_a_name_holds_the_names_of_the_rows(save: Save) -> None:
    frame = FRAME[["height", "mass"]].set_index(pd.Index([1, 2, 16, 2, 1]))
    for path in (save("t.csv", frame, index=True), save("t.parquet", frame)):
        data, split = whole(path, label="index")
        assert data.columns == ("height", "mass") and data.classes == ("1", "2", "16")
        assert split.y is not None and split.y.tolist() == [0, 1, 2, 1, 0]
    assert whole(save("t.csv", frame, index=True))[0].columns == ("height", "mass")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"10", "9", "-1"}, ("-1", "9", "10")),
        ({"32 TE", "4", "16", "32 ICM"}, ("4", "16", "32 ICM", "32 TE")),
        ({"b", "a", "a2", "a10", "²"}, ("a", "a2", "a10", "b", "²")),
        ({"True", "False"}, ("False", "True")),
    ],
)
def test_classes_are_listed_as_people_do(names: set[str], expected: tuple[str, ...]) -> None:
    assert in_order(names) == expected


def test_labels_read_as_floats_have_no_decimals(save: Save) -> None:
    assert whole(save("t.csv", "a,k\n1,2.0\n2,1.0\n3,2.0\n"), label="k")[0].classes == ("1", "2")


def test_names_that_a_config_reads_as_numbers(save: Save) -> None:
    data, split = whole(save("t.csv", "1,2,3\n1,2,3\n4,5,6\n"), columns=[2, 1], target=3)
    assert data.columns == ("2", "1") and split.all().x.tolist() == [[2, 1], [5, 4]]


def sentence(*arguments: Any, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        load(*arguments, **options)
    return str(error.value)


def test_text_where_a_number_belongs_is_named(save: Save) -> None:
    path = save("t.csv", "a,b\n1,1\n2,many\n3,3\n")
    for columns in (None, ["b"]):
        text = sentence(path, columns=columns)
        assert "column b, row 2 (counted from 1" in text and "holds 'many'" in text and f"dataset.train={path}" in text
    assert "column b, row 2" in sentence(path, target="b")
    assert "column name, row 1" in sentence(save("t.csv"), columns=["name"])
    dates = pd.DataFrame({"a": [1.0, 2.0], "day": pd.to_datetime(["2013-01-01", "2013-01-02"])})
    assert "column day, row 1" in sentence(save("t.parquet", dates), columns=["day"])
    assert whole(save("t.parquet", dates))[0].columns == ("a",)


def test_names_that_do_not_exist_suggest_the_nearest(save: Save) -> None:
    path = save("t.csv")
    assert "has no column hieght; did you mean height" in sentence(path, columns=["hieght", "mass"])
    assert "has no column Age; did you mean age? (index means the names of the rows)" in sentence(path, target="Age")
    assert "has no column zzz; its columns are height, mass, count, name, group and 1 more" in sentence(
        path, label="zzz"
    )
    h5ad = save("t.h5ad", annotated())
    assert "has no column gruop; did you mean group" in sentence(h5ad, label="gruop")
    assert "has no layer double; did you mean doubled?" in sentence(h5ad, layer="double")
    assert "dataset.layer=doubled needs an .h5ad file" in sentence(path, layer="doubled")


def test_what_a_test_file_lacks(save: Save) -> None:
    test = save("test.csv", FRAME.drop(columns=["mass", "height"]).rename(columns={"count": "masses"}))
    text = sentence(save("train.csv"), test=test)
    assert f"dataset.test={test} has no column height (and 2 more are missing)" in text
    test = save("test.csv", FRAME.drop(columns="group"))
    assert f"dataset.test={test} has no column group" in sentence(save("train.csv"), test=test, label="group")


def test_targets_that_are_missing(save: Save) -> None:
    path = save("t.csv", "a,b,c\n1,1,x\n2,,y\n3,,\n")
    assert "has 2 empty cells in the column b of the target or label, first in row 2" in sentence(path, target="b")
    assert "has 1 empty cells in the column c" in sentence(path, label="c")
    assert "infinite values" in sentence(save("t.csv", "a,b\n1,1\n2,1e300\n"), target="b")


def test_roles_that_contradict_each_other(save: Save) -> None:
    path = save("t.csv")
    assert "cannot both be the target" in sentence(path, target="age", label="group")
    assert "dataset.columns has age, which is the target" in sentence(path, columns=["age"], target="age")
    assert "names a column twice" in sentence(path, columns=["age", "age"])


def test_constant_columns_are_named_where_they_are_standardised(save: Save) -> None:
    path = save("t.csv", "a,b\n1,7\n2,7\n3,7\n")
    data = Table(path, batch_size="full")
    with pytest.raises(UserError, match=r"cannot be standardised: b; leave them out of dataset\.columns"):
        data.setup()
    Table(path, standardise=False, batch_size="full").setup()


def test_files_without_anything_to_observe(save: Save, tmp_path: Path) -> None:
    assert "dataset.train is missing" in sentence(None)
    assert "nowhere.csv does not exist (looked for" in sentence(str(tmp_path / "nowhere.csv"))
    assert "must end in .csv, .tsv, .parquet or .h5ad" in sentence(save("t.xlsx", "a"))
    assert "is empty: it has no header" in sentence(save("t.csv", ""))
    assert "is empty: it has no rows" in sentence(save("t.csv", "a,b\n"))
    assert "has no numeric column to observe; its columns are a;b" in sentence(save("t.csv", "a;b\n1;2\n3;4\n"))
    assert "has infinite values" in sentence(save("t.csv", "a\n1\ninf\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.parquet", b"junk"), ("t.h5ad", b"junk"), ("t.csv", "a,b\n1,2\n1,2,3,4\n"), ("t.csv", b"a,b\n\xff\xfe,2\n")],
)
def test_damaged_files(save: Save, name: str, content: bytes) -> None:
    assert f"cannot be read as .{name[2:]}: " in sentence(save(name, content))


def test_repeated_names_are_ambiguous(save: Save) -> None:
    data = annotated()
    data.var_names = ["height", "mass", "mass"]
    assert "several columns of the same name: mass" in sentence(save("t.h5ad", data))


@pytest.mark.parametrize("name", ["pandas", "anndata", "pyarrow"])
def test_packages_that_are_not_installed(save: Save, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"pandas": save("t.csv"), "anndata": save("t.h5ad", annotated()), "pyarrow": save("t.parquet")}
    monkeypatch.setitem(sys.modules, name, None)
    assert f'tables need {name}, which is not installed: pip install -e ".[tables]"' in sentence(files[name])


def test_the_qpcr_table_names_its_stages(data_file: Callable[[str], Path]) -> None:
    data = Table(str(data_file("tables/guo_qpcr.csv")), label="index", batch_size="full")
    data.setup()
    assert data.facts.classes == ("1", "2", "4", "8", "16", "32 ICM", "32 TE", "64 EPI", "64 PE", "64 TE")
    assert len(data.train) + len(data.test) == 437 and data.facts.shape == (48,) and data.facts.columns[0] == "Actb"


def test_the_single_cells_of_an_annotated_file(data_file: Callable[[str], Path]) -> None:
    path = data_file("tables/10x_pbmc68k_reduced.h5ad")
    data = Table(str(path), label="bulk_labels", batch_size="full", standardise=False)
    data.setup()
    assert data.facts.shape == (765,) and len(data.facts.classes) == 10 and "CD19+ B" in data.facts.classes
    names = read_sheet(path, "here").names
    assert data.facts.columns == tuple(names) and len(data.train) == 630


ANSWERS = pd.DataFrame(
    {
        "colour_red": [1, 0, 0, 1, 0, 0],
        "size_s": [0, 1, 0, None, 0, 1],
        "colour_blue": [0, 1, 1, 0, 1, 0],
        "size_l": [1, 0, 1, 0, 1, 0],
        "colour_green": [0, 0, 0, 0, 0, 1],
        "age": [3.0, 4, 5, 6, 7, 8],
    }
)


def test_categories_are_groups_of_one_hot_columns(save: Save) -> None:
    """In the order of their names; an empty cell makes the whole category missing."""
    data = Table(
        save("a.csv", ANSWERS),
        test=save("b.csv", ANSWERS),
        one_hot=["size_", "colour_"],
        standardise=False,
        batch_size=2,
    )
    data.setup()
    assert data.columns == ("size_s", "size_l", "colour_red", "colour_blue", "colour_green")
    assert data.facts.one_hot == (2, 3) and data.facts.binary and data.facts.shape == (5,)
    mask = data.train.all().mask
    assert mask is not None and (~mask).nonzero().tolist() == [[3, 0], [3, 1]]
    assert torch.equal(data.train.all().x[5], torch.tensor([1.0, 0, 0, 0, 1]))


def test_categories_are_hidden_as_a_whole(save: Save) -> None:
    frame = ANSWERS.fillna(1)
    data = Table(
        save("a.csv", frame),
        test=save("b.csv", frame),
        one_hot=["size_", "colour_"],
        standardise=False,
        batch_size=2,
        missing={"fraction": 0.5, "split": "both"},
    )
    data.setup()
    for split in (data.train, data.test):
        assert split.hidden is not None
        sizes, colours = split.hidden.split([2, 3], 1)
        assert torch.equal(sizes.any(1), sizes.all(1)) and torch.equal(colours.any(1), ~sizes.any(1))
        assert torch.equal(colours.any(1), colours.all(1))


@pytest.mark.parametrize(
    ("frame", "options", "reason"),
    [
        (ANSWERS, {"one_hot": ["shape_"]}, "names shape_, but .* has 0 columns that begin so"),
        (ANSWERS, {"one_hot": ["colour_", "colour_"]}, "a column begins with several of these names"),
        (ANSWERS.assign(colour_red=1), {"one_hot": ["colour_"]}, r"is not one-hot in row 2 .* colour_red, colour_blue"),
        (ANSWERS, {"one_hot": ["colour_"], "standardise": True}, r"dataset\.one_hot needs dataset\.standardise=false"),
        (ANSWERS, {"one_hot": ["colour_"], "columns": ["age"]}, r"dataset\.one_hot needs"),
    ],
)
def test_columns_that_are_not_one_hot_are_refused(save: Save, frame: Any, options: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        load(save("a.csv", frame), **options)
