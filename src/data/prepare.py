"""Datasets that can be downloaded, verified or generated ahead of time, by name."""

from importlib import import_module
from pathlib import Path

FETCHED = ("mnist", "fmnist", "cifar10")
CLASSES = {  # of the datasets that declare their files themselves
    "anuran": "src.data.anuran.Anuran",
    "oil_flow": "src.data.oil_flow.OilFlow",
    "qpcr": "src.data.cells.QPCR",
    "pbmc68k": "src.data.cells.PBMC68k",
    "frey": "src.data.faces.Frey",
    "olivetti": "src.data.faces.Olivetti",
    "drivface": "src.data.faces.DrivFace",
    "cmu35": "src.data.motion.CMU35",
    "textures": "src.data.textures.Textures",
    "flights": "src.data.flights.Flights",
    "sarcos": "src.data.sarcos.Sarcos",
    "rectangles": "src.data.rectangles.Rectangles",
    "rectangles_image": "src.data.rectangles.RectanglesImage",
}
NAMES = (*FETCHED, "cifar10_subset", "mnist_million", *CLASSES)
FILES_OF = {
    **{name: name for name in NAMES if name != "textures"},  # whose files depend on an option
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
    if name in CLASSES:
        module, _, dataset = CLASSES[name].rpartition(".")
        files = getattr(import_module(module), dataset).files
    else:
        files = DATASETS[name.removesuffix("_subset")]
    contents, source = obtain(files, root)
    return f"{name}: {len(contents)} files verified in {(root / files.folder).absolute()}, from {source}"
