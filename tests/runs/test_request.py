"""A run that somebody asked for."""

from pathlib import Path

from omegaconf import OmegaConf

from src.runs.identity import fingerprint, folder_name
from src.runs.request import RunRequest, request
from tests.configs import composed


def test_a_request_knows_its_folder_and_its_status(tmp_path: Path) -> None:
    config = composed("model=vae", f"paths.outputs={tmp_path}")
    request = RunRequest(["model=vae"], config, "vae", "digits")
    assert request.folder == tmp_path / folder_name(config, "vae", "digits") and request.status == "missing"
    request.folder.mkdir()
    (request.folder / "record.json").write_text('{"status": "failed"}')
    assert request.status == "failed"


def test_own_data_have_the_name_that_the_user_gives_them() -> None:
    options = {"model": "vae", "dataset": "array"}
    plain, named = (composed("model=vae", "dataset=array", *more) for more in ([], ["dataset.name=wine"]))
    assert request([], OmegaConf.create(plain), options).dataset == "array"
    found = request([], OmegaConf.create(named), options)
    assert found.dataset == "wine" and found.folder.name == f"vae-wine-s0-{fingerprint(plain)}"
