"""A training that Lightning stops itself."""

from pathlib import Path

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.utilities.exceptions import SIGTERMException

from src.runs import record
from tests.training.test_experiment import small_run


def test_a_signal_that_lightning_notices_first_exits_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: object, **__: object) -> None:
        raise SIGTERMException

    monkeypatch.setattr(Trainer, "fit", fit)
    with pytest.raises(SystemExit) as stop:
        small_run(tmp_path)
    assert stop.value.code == 143
    (folder,) = tmp_path.iterdir()
    assert record.status(folder) == "interrupted"
