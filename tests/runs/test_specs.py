"""Specs: what they build, also under old names, and one sentence if it cannot be built."""

import pytest
from torch import nn

from src.runs.errors import UserError
from src.runs.specs import make


def test_a_spec_builds_what_it_names_with_further_arguments() -> None:
    net = make({"_target_": "src.nets.mlp.mlp", "hidden": [4]}, shape=(3,), outputs=2)
    assert [layer.out_features for layer in net if isinstance(layer, nn.Linear)] == [4, 2]


def test_a_spec_of_before_is_built_by_its_alias() -> None:
    spec = {"_target_": "src.nets.mlp", "hidden": [4]}  # also the name of a module now
    assert isinstance(make(spec, shape=(3,), outputs=2), nn.Sequential)


def test_what_cannot_be_built_is_one_sentence_with_its_name() -> None:
    with pytest.raises(UserError, match=r"^gpytorch\.kernels\.NoKernel: "):
        make({"_target_": "gpytorch.kernels.NoKernel"})
    with pytest.raises(UserError, match=r"^src\.nets\.mlp\.mlp: .*depth"):
        make({"_target_": "src.nets.mlp.mlp", "depth": 3}, shape=(3,), outputs=2)
