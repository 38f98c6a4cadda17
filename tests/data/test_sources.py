"""Files are verified always, written whole or not at all, and one source that fails is only a sentence."""

import gzip
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from src.data import fetching, sources
from src.data.sources import obtain
from src.runs.errors import UserError
from tests.data.tiny_files import CONTENTS, MD5, tiny, tree, write_good


def write_truncated(folder: Path) -> Path:
    write_good(folder)
    (folder / "images").write_bytes(CONTENTS["images"][:-1])
    return folder


def no_network(scratch: Path) -> Path:
    raise ConnectionError("the network\nis down")


def test_local_files_are_used_and_nothing_is_written(tmp_path: Path) -> None:
    write_good(tmp_path / "Tiny/raw")
    assert obtain(tiny(), tmp_path) == (CONTENTS, "the local root")
    assert tree(tmp_path) == {"Tiny/raw/images", "Tiny/raw/labels"}


def test_gzipped_local_files_are_used(tmp_path: Path) -> None:
    images = write_good(tmp_path / "Tiny/raw") / "images"
    images.unlink()
    images.with_name("images.gz").write_bytes(gzip.compress(CONTENTS["images"]))
    assert obtain(tiny(), tmp_path).contents == CONTENTS


def test_missing_files_are_fetched_once(tmp_path: Path) -> None:
    root = tmp_path / "not/there/yet"
    assert obtain(tiny(registry=write_good), root) == (CONTENTS, "registry")
    assert obtain(tiny(registry=no_network), root) == (CONTENTS, "the local root")
    assert tree(root) == {"Tiny/raw/images", "Tiny/raw/labels", ".Tiny.lock"}


def test_a_truncated_local_file_is_named_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = write_truncated(tmp_path / "Tiny/raw") / "images"
    found = hashlib.md5(images.read_bytes()).hexdigest()
    assert obtain(tiny(registry=write_good), tmp_path).contents == CONTENTS
    assert f"{images} is not used: its MD5 is {found}, expected {MD5['images']}" in caplog.messages
    assert images.read_bytes() == CONTENTS["images"]


def test_a_truncated_gzip_file_is_named_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    packed = write_good(tmp_path / "Tiny/raw") / "images.gz"
    packed.write_bytes(gzip.compress(CONTENTS["images"])[:-9])
    (tmp_path / "Tiny/raw/images").unlink()
    assert obtain(tiny(registry=write_good), tmp_path).source == "registry"
    assert f"{packed} is not used" in caplog.text


def test_good_local_files_are_kept_when_others_are_fetched(tmp_path: Path) -> None:
    labels = write_truncated(tmp_path / "Tiny/raw") / "labels"
    os.utime(labels, (1, 1))
    obtain(tiny(registry=write_good), tmp_path)
    assert labels.stat().st_mtime == 1


def test_a_source_that_fails_or_is_corrupt_is_one_sentence_before_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = tiny(first=no_network, second=write_truncated, third=write_good)
    assert obtain(files, tmp_path).source == "third"
    assert "first failed: the network is down" in caplog.messages
    assert any(line.startswith("second failed: ") and MD5["images"] in line for line in caplog.messages)


def test_when_nothing_works_every_source_and_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        obtain(tiny(first=no_network, second=write_truncated), tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "Tiny could not be obtained:"
    assert [line.split()[1] for line in lines if line.startswith("- ")] == [f"{tmp_path}/Tiny/raw", "first", "second"]
    assert lines[-2:] == [f"  {tmp_path}/Tiny/raw/images", f"  {tmp_path}/Tiny/raw/labels"]
    assert tree(tmp_path) == {".Tiny.lock"}


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(self: Path, target: Path) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(UserError, match="registry failed: no space left on device"):
        obtain(tiny(registry=write_good), tmp_path)
    assert tree(tmp_path) == {".Tiny.lock"}


@pytest.fixture
def read_only_root() -> Iterator[Path]:
    """A root whose files can be read but not written, also where the tests are run by root."""
    with TemporaryDirectory() as folder:
        root, user = Path(folder), os.geteuid()
        write_good(root / "Tiny/raw")
        folders = [root, root / "Tiny", root / "Tiny/raw"]
        for path in folders:
            path.chmod(0o555)
        if user == 0:
            os.seteuid(65534)
        try:
            yield root
        finally:
            os.seteuid(user)
            for path in folders:
                path.chmod(0o755)


def test_a_complete_read_only_root_works(read_only_root: Path) -> None:
    with pytest.raises(PermissionError):
        (read_only_root / "probe").touch()
    assert obtain(tiny(registry=no_network), read_only_root).contents == CONTENTS


def test_an_incomplete_read_only_root_is_refused_with_the_reason(read_only_root: Path) -> None:
    files = replace(tiny(registry=write_good), folder="Other")
    with pytest.raises(UserError, match=r"nothing can be downloaded to .*Permission denied"):
        obtain(files, read_only_root)


FETCH_SLOWLY = """
import sys, time
from pathlib import Path
from src.data.sources import FileSet, obtain
root, calls = Path(sys.argv[1]), Path(sys.argv[2])

def slow(scratch):
    with calls.open("a") as file:
        file.write("called\\n")
    time.sleep(0.5)
    (scratch / "images").write_bytes(b"pixels" * 100)
    (scratch / "labels").write_bytes(b"digits")
    return scratch

while not (calls.parent / "go").exists():
    time.sleep(0.01)
print(len(obtain(FileSet("Tiny", "Tiny/raw", eval(sys.argv[3]), {"slow": slow}), root).contents))
"""


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    root, calls = tmp_path / "root", tmp_path / "calls"
    command = [sys.executable, "-c", FETCH_SLOWLY, str(root), str(calls), repr(MD5)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    (tmp_path / "go").touch()
    assert [process.communicate(timeout=60)[0] for process in both] == ["2\n", "2\n"]
    assert calls.read_text() == "called\n"
    assert tree(root) == {"Tiny/raw/images", "Tiny/raw/labels", ".Tiny.lock"}


def test_files_without_a_source_are_asked_for_in_one_sentence(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(UserError) as caught:
        obtain(replace(tiny(), origin="ask Ann"), root)
    wanted = ", ".join(f"{name} (MD5 {md5})" for name, md5 in MD5.items())
    assert str(caught.value) == f"Tiny cannot be downloaded: put {wanted} into {root / 'Tiny/raw'}; ask Ann"
    assert not root.exists()
    (write_good(root / "Tiny/raw") / "labels").unlink()
    with pytest.raises(UserError, match=r"put labels \(MD5 [0-9a-f]{32}\) into"):
        obtain(tiny(), root)


def test_checksums_are_torchvisions() -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    assert sources.CIFAR10.md5 == dict(datasets.CIFAR10.train_list + datasets.CIFAR10.test_list)
    assert sources.CIFAR10.folder == datasets.CIFAR10.base_folder
    for files, theirs in ((sources.MNIST, datasets.MNIST), (sources.FASHION_MNIST, datasets.FashionMNIST)):
        assert [f"{name}.gz" for name in files.md5] == [name for name, _ in theirs.resources]
        assert files.folder == f"{theirs.__name__}/raw"


def test_no_registry_is_named() -> None:
    text = Path(sources.__file__).read_text() + Path(fetching.__file__).read_text()
    assert not any(part in text for part in ("://", ".org", ".com", ".net"))
