"""A run that somebody asked for."""

from pathlib import Path

from src.runs.identity import folder_name
from src.runs.request import RunRequest
from tests.configs import composed


def test_a_request_knows_its_folder_and_its_status(tmp_path: Path) -> None:
    config = composed("model=vae", f"paths.outputs={tmp_path}")
    request = RunRequest(["model=vae"], config, "vae", "digits")
    assert request.folder == tmp_path / folder_name(config, "vae", "digits") and request.status == "missing"
    request.folder.mkdir()
    (request.folder / "record.json").write_text('{"status": "failed"}')
    assert request.status == "failed"
