"""Textures: small patches of photographs of surfaces, for filling in missing pixels (Bui & Turner, 2015)."""

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from src.data import fetching, sources
from src.data.batch import Split, split_of
from src.data.facts import Facts
from src.data.files import FromFiles
from src.data.module import Options
from src.runs.errors import UserError

SIDE, EACH = 16, 150  # pixels of a patch, and patches of a texture in each split
SCIKIT_IMAGE = {
    "brick.png": "b4177b840b8d017fd04c0fe8c9dafc61",
    "grass.png": "406db280a14db26d04b65c3c3d0c188f",
    "gravel.png": "1ae4f1e9e7988a5279ee2b3b0bd24e1f",
}
BRODATZ = {
    "D105.gif": "6f27031fed8269dd0fb9d36572eb84de",
    "D16.gif": "bd81a2680d168ed1bd156b7d840a7e0e",
    "D19.gif": "c49ee81d5ac0241cc42765fbb9367140",
    "D20.gif": "166d44aa57308f1044d5d6009d85964e",
    "D21.gif": "070b869c8f38f6005595c062c09dd29e",
    "D52.gif": "b3e50f0ec2fd1a6fedb01633e45e723c",
    "D53.gif": "fea16eb7f88bef7b8f59cb773c109a1e",
    "D55.gif": "83a53d7f3ed452d84bd24a5feb16ca82",
    "D65.gif": "5a3d6019a57aab602339b7ce28b185da",
    "D78.gif": "84891367765a6645da6bf344960d3367",
}
FILES = {Path(name).stem: name for name in (*SCIKIT_IMAGE, *BRODATZ)}


def texture_files(names: Sequence[str]) -> sources.FileSet:
    """The files of some textures; scikit-image's wheel has its own, Brodatz's must be put into the folder by hand."""
    wanted = [FILES[name] for name in names]
    md5 = {name: {**SCIKIT_IMAGE, **BRODATZ}[name] for name in wanted}
    in_wheel = {name: f"skimage/data/{name}" for name in wanted if name in SCIKIT_IMAGE}
    wheel: sources.Source = partial(fetching.registry_files, "scikit-image", in_wheel)
    found = {"the wheel scikit-image by pip": wheel} if len(in_wheel) == len(wanted) else {}
    return sources.FileSet("Textures", "textures", md5, found, "no public address of Brodatz's textures is known")


class Textures(FromFiles):
    """150 + 150 patches of each texture, [N, 1, 16, 16], labelled by the texture; no two patches share a pixel.

    The patches are the same in every run. The photographs are scikit-image's (brick, grass, gravel; in the public
    domain) or Brodatz's (D16, D20, ...), if you have them, not the paper's plaid and knit.
    With `standardise`, the pixels have mean 0 and sd 1 over all training patches, as the paper's errors suggest.
    """

    def __init__(
        self,
        root: str | Path,
        textures: Sequence[str] = ("brick", "gravel"),
        standardise: bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(root, **options)
        if not textures or not set(textures) <= set(FILES) or len(set(textures)) < len(textures):
            known = ", ".join(FILES)
            raise UserError(f"dataset.textures=[{','.join(textures)}] must be some of {known}, each once")
        self.files, self.classes, self.standardised = texture_files(textures), tuple(textures), bool(standardise)

    files = texture_files(("brick", "gravel"))  # of the default textures

    def load(self) -> tuple[Split, Split]:
        """The first of the drawn patches of each texture are for training."""
        patches = [draw_patches(content) for content in self.contents().values()]
        y = torch.arange(len(patches)).repeat_interleave(EACH)
        train, test = (torch.cat(part) for part in zip(*(p.split(EACH) for p in patches), strict=True))
        if self.standardised:
            sd, mean = torch.std_mean(train.double(), correction=0)
            train, test = (((x - mean) / sd).float() for x in (train, test))
        return split_of(train, y), split_of(test, y)

    @property
    def facts(self) -> Facts:
        """Standardised pixels lie in no fixed range."""
        facts = super().facts
        return replace(facts, scale="table") if self.standardised else facts


def draw_patches(content: bytes) -> Tensor:
    """Patches [300, 1, 16, 16] of a photograph, drawn from its chequered plan without replacement."""
    from PIL import Image

    photograph = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
    rows, columns = (size // SIDE for size in photograph.shape)
    tiles = photograph[: rows * SIDE, : columns * SIDE].reshape(rows, SIDE, columns, SIDE)
    patches = torch.from_numpy(tiles.swapaxes(1, 2).reshape(-1, 1, SIDE, SIDE).copy())
    return patches[torch.randperm(len(patches), generator=torch.Generator().manual_seed(0))[: 2 * EACH]]
