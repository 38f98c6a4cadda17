"""Where the files of datasets come from: the local root first, then sources in order. All files are verified."""

import gzip
import hashlib
import io
import logging
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from filelock import FileLock

from src.data.fetching import (
    DEBIAN_PACKAGE,
    MNIST_WHEEL,
    debian_download,
    debian_installed,
    mnist_wheel,
    torchvision_download,
)
from src.runs.errors import UserError
from src.runs.files import write_whole

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


def members_md5(content: bytes) -> str:
    """The MD5 of the files in a zip file, by name, without its readme: those stay the same if it is packed anew."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        named = {PurePosixPath(path).name: path for path in archive.namelist() if not path.endswith("/")}
        whole = hashlib.md5(usedforsecurity=False)
        for name in sorted(named):
            if not name.startswith("readme"):
                whole.update(archive.read(named[name]))
    return whole.hexdigest()


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
