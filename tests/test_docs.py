"""The documentation's code runs as it stands."""

import math
import re
from pathlib import Path

import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.images import Digits
from src.data.module import Batch
from src.launch.cli import missing_plugin
from src.models.base import Decoder, Terms
from tests.configs import composed

ROOT = Path(__file__).parents[1]


def test_the_example_of_a_new_model_trains() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    names = {
        "math": math,
        "torch": torch,
        "Tensor": Tensor,
        "Normal": Normal,
        "Batch": Batch,
        "Decoder": Decoder,
        "Terms": Terms,
    }
    exec(re.sub("^   ", "", block[1], flags=re.MULTILINE), names)
    config = composed()
    data = Digits(batch_size=64)
    data.setup()
    model = names["Linear"](data.shape, len(data.train), config["encoder"], config["optimizer"])  # type: ignore[operator]
    model.initialise(data)
    optimizer = model.make_optimizer()
    losses = []
    for batch in list(data.train_dataloader()) * 5:
        optimizer.zero_grad()
        losses.append(model.objective(batch).loss)
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.1


def test_every_command_of_the_readme_composes() -> None:
    """Each `python -m src.train ...` line names options and values that exist."""
    lines = re.findall(r"^\s*python -m src\.train ([^#\n]*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        words = [word for word in line.split() if "=" in word]
        if missing_plugin(words):  # of an extra, whose options only it has
            words = [word for word in words if not word.startswith("hydra")]
        overrides = [re.sub(r"=([^,]+),.*", r"=\1", word) for word in words]
        assert composed(*overrides)["model"]["_target_"]
