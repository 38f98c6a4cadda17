"""Datasets that can be downloaded, verified or generated ahead of time, by name."""

from pathlib import Path

FETCHED = ("mnist", "fmnist", "cifar10")
NAMES = (*FETCHED, "cifar10_subset", "mnist_million")
FILES_OF = {
    **{name: name for name in (*FETCHED, "cifar10_subset")},
    **dict.fromkeys(("rotated_mnist", "mnist_million"), "mnist"),  # built from MNIST
}


def prepare(name: str, root: Path, size: int = 0) -> str:
    """Download and verify, or generate, one dataset; return a line on where it came from and where it is."""
    from src.data.sources import CIFAR10_SUBSET, DATASETS, obtain

    if name == "mnist_million":
        from src.data.mnist_million import make

        return f"{name}: {size} images and their labels in {' and '.join(str(p.absolute()) for p in make(root, size))}"
    if name == "cifar10_subset" and (stored := root / CIFAR10_SUBSET).exists():
        return f"{name}: {stored.absolute()}"
    files = DATASETS[name.removesuffix("_subset")]
    contents, source = obtain(files, root)
    return f"{name}: {len(contents)} files verified in {(root / files.folder).absolute()}, from {source}"
