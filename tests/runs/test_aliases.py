"""Classes that moved are found by their old names, and every class that a config names is there."""

import re
from importlib import import_module
from importlib.util import find_spec

import pytest
from hydra.utils import get_object

from src.launch.cli import CONF
from src.models.sas import SAS
from src.nets.mlp import TanhDecoder
from src.runs import aliases
from src.runs.identity import class_name

BEFORE = [  # what configs named before the modules moved
    *("src.auxiliary.ObjectAngle", "src.auxiliary.VideoTime", "src.auxiliary.Learned", "src.auxiliary.rbf"),
    *("src.auxiliary.ObjectAngleKernel", "src.conv_nets.ELUDecoder", "src.conv_nets.ELUEncoder"),
    *("src.conv_nets.TanhDecoder", "src.conv_nets.tanh_encoder", "src.loggers.TensorBoard", "src.loggers.Wandb"),
    *("src.nets.mlp_decoder", "src.nets.conv", "src.nets.mlp"),
]
TARGETS = sorted({path for file in CONF.rglob("*.yaml") for path in re.findall(r"_target_: (\S+)", file.read_text())})


@pytest.mark.parametrize("path", [*BEFORE, *aliases.NAMES])
def test_every_class_that_moved_is_found(path: str) -> None:
    found = get_object(aliases.current(path))
    assert callable(found) and found.__name__ == path.rpartition(".")[2]


@pytest.mark.parametrize("module", aliases.MODULES)
def test_every_module_that_moved_is_there(module: str) -> None:
    assert find_spec(module) is None
    assert import_module(aliases.MODULES[module])


@pytest.mark.parametrize("path", [path for path in TARGETS if not path.startswith("hydra_plugins.")])
def test_every_class_that_a_config_names_can_be_imported(path: str) -> None:
    assert callable(get_object(path)) and aliases.current(path) == path


def test_our_classes_have_names_of_their_own_since_the_fingerprint_counts_them_by_name() -> None:
    own = [path for path in TARGETS if path.startswith("src.")]
    assert len({class_name(path) for path in own}) == len(own) > 20


def test_classes_are_found_by_old_and_new_names() -> None:
    assert aliases.find_class("src.models.sas.SAS") is SAS
    assert aliases.find_class("src.conv_nets.TanhDecoder") is TanhDecoder
    assert aliases.current("torch.optim.Adam") == "torch.optim.Adam"


def test_a_spec_is_renewed_to_any_depth_and_the_old_one_stays() -> None:
    old = {"_target_": "src.nets.mlp", "inner": [{"_target_": "src.auxiliary.rbf", "text": "src.nets.mlp"}]}
    new = {"_target_": "src.nets.mlp.mlp", "inner": [{"_target_": "src.gp.kernels.rbf", "text": "src.nets.mlp"}]}
    assert aliases.renewed(old) == new and old["_target_"] == "src.nets.mlp"
