"""The identity of a run: what counts in the fingerprint and what does not, and that it survives our own changes."""

from copy import deepcopy
from typing import Any

import pytest

from src.runs import identity
from src.runs.identity import Config, fingerprint, folder_name
from tests.configs import composed

# Written out, not read from the code: a setting that is added there by mistake must fail here.
DO_NOT_COUNT = {
    *("paths.data", "paths.outputs", "rerun", "group", "fail_fast", "checkpoint_minutes", "dataset.root"),
    "search.metric",
    *("evaluation.exact_evidence", "evaluation.evidence_points", "evaluation.evidence_precision", "evaluation.refine"),
    "evaluation.geometry",
    *("trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.max_time"),
    *("logger.media_every", "logger.tensorboard._target_"),
    *("active_set.size", "kernel._target_", "kernel.base_kernel._target_", "encoder._target_", "encoder.hidden"),
    *("optimizer.lr", "optimizer.gp_lr_factor", "optimizer.latent_lr_factor", "optimizer.schedule"),
    *("optimizer.algorithm._target_", "optimizer.algorithm._partial_", "optimizer.algorithm.fused"),
}
COUNT = {  # some of those that matter most
    *("seed", "dataset.batch_size", "dataset.max_train", "trainer.max_epochs", "trainer.precision"),
    *("model.noise", "model.latent_dim", "model.active_set", "model.kernel.base_kernel._target_"),
    *("model.encoder.hidden", "model.optimizer.lr", "evaluation.active_sets", "evaluation.condition_on"),
}


def leaves(config: Config, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The place of every value."""
    found = []
    for key, value in config.items():
        found += leaves(value, (*path, key)) if isinstance(value, dict) else [(*path, key)]
    return found


def put(config: Config, name: str, value: Any) -> Config:
    """The config with a value at a dotted name."""
    other = deepcopy(config)
    node = other
    *parents, leaf = name.split(".")
    for key in parents:
        node = node.setdefault(key, {})
    node[leaf] = value
    return other


def get(config: Config, name: str) -> Any:
    for key in name.split("."):
        config = config[key]
    return config


def test_any_value_that_can_change_the_numbers_changes_the_fingerprint() -> None:
    config = composed("model=bayesian_sas", "dataset=mnist", "logger=tensorboard")
    names = {".".join(path) for path in leaves(config)}
    assert names >= COUNT | DO_NOT_COUNT
    for name in names:
        other = put(config, name, f"not {get(config, name)}")
        assert (fingerprint(other) == fingerprint(config)) == (name in DO_NOT_COUNT), name


def test_runs_from_before_the_exact_evidence_keep_their_folders() -> None:
    config = composed()
    older = {key: config["evaluation"][key] for key in ("active_sets", "condition_on")}
    assert fingerprint({**config, "evaluation": older}) == fingerprint(config)


def test_the_name_is_readable_and_carries_the_fingerprint() -> None:
    config = composed("model=sas", "dataset=mnist", "active_set=a400")
    assert folder_name(config, "sas", "mnist") == f"sas-mnist-a400-s0-{fingerprint(config)}"
    config = composed("model=vae", "dataset=digits", "seed=3")
    assert folder_name(config, "vae", "digits") == f"vae-digits-s3-{fingerprint(config)}"


@pytest.mark.parametrize("name", ["new", "model.new", "dataset.missing.fraction", "model.kernel.base_kernel.new"])
def test_a_new_option_that_is_null_leaves_the_fingerprint_as_it_is(name: str) -> None:
    config = composed()
    assert fingerprint(put(config, name, None)) == fingerprint(config)
    assert fingerprint(put(config, name, 0)) != fingerprint(config)
    assert fingerprint(put(config, name, False)) != fingerprint(config)


def test_null_in_a_list_keeps_its_place() -> None:
    config = composed()
    lists = [put(config, "model.sizes", value) for value in ([1], [None, 1], [1, None])]
    assert len({fingerprint(other) for other in lists}) == 3


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("model._target_", "src.models.elsewhere.deeper.SAS"),
        ("model.encoder._target_", "src.nets.mlp"),  # its place before the modules moved
        ("dataset._target_", "src.Digits"),
    ],
)
def test_a_class_of_ours_counts_by_its_name(name: str, moved: str) -> None:
    config = composed()
    assert fingerprint(put(config, name, moved)) == fingerprint(config)
    assert fingerprint(put(config, name, f"{moved}2")) != fingerprint(config)


def test_a_class_of_another_package_counts_by_its_full_path() -> None:
    config = composed()
    name = "model.kernel.base_kernel._target_"
    assert get(config, name) == "gpytorch.kernels.RBFKernel"
    others = [put(config, name, path) for path in ("mine.RBFKernel", "gpytorch.RBFKernel", "srcs.RBFKernel")]
    assert len({fingerprint(other) for other in [config, *others]}) == 4


def test_the_settings_are_what_counts_without_seeds() -> None:
    settings = identity.settings(composed("model=sas", "seed=3", "encoder.hidden=[8,4]"))
    assert settings["model.encoder.hidden"] == "[8, 4]" and settings["trainer.max_epochs"] == 150
    assert not {name for name in settings if name.endswith("seed")} and not DO_NOT_COUNT & settings.keys()


def test_a_users_file_counts_by_its_content_wherever_it_is() -> None:
    config = composed("dataset=array", "dataset.train=here/x.npy")
    moved = composed("dataset=array", "dataset.train=there/y.npy")
    assert fingerprint({**config, "content": {"train": "1a"}}) == fingerprint({**moved, "content": {"train": "1a"}})
    assert fingerprint({**config, "content": {"train": "1a"}}) != fingerprint({**config, "content": {"train": "2b"}})
    assert fingerprint(config) != fingerprint(moved)  # as long as there is no such file
