"""The digest of the code: it sees every change of a name or of content, and nothing that Python wrote."""

from pathlib import Path

from src.runs.code import PACKAGES, digest, sources


def tree(root: Path) -> Path:
    for package in PACKAGES:
        (root / package).mkdir(parents=True)
        (root / package / "one.py").write_text("a")
    return root


def test_the_digest_follows_names_and_content(tmp_path: Path) -> None:
    first = digest(tree(tmp_path / "a"))
    assert digest(tree(tmp_path / "b")) == first and len(first) == 12
    (tmp_path / "b" / "conf" / "one.py").write_text("b")  # of the same length
    (tmp_path / "a" / "conf" / "one.py").rename(tmp_path / "a" / "conf" / "two.py")
    assert len({first, digest(tmp_path / "a"), digest(tmp_path / "b")}) == 3


def test_what_python_wrote_does_not_count(tmp_path: Path) -> None:
    first = digest(tree(tmp_path))
    (tmp_path / "src" / "__pycache__").mkdir()
    (tmp_path / "src" / "__pycache__" / "one.pyc").write_text("c")
    assert digest(tmp_path) == first and len(sources(tmp_path)) == len(PACKAGES)
