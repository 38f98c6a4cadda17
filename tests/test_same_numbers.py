"""Quick runs whose metrics were stored once: the same commands give the same numbers, whatever is rebuilt inside.

`python -m tests.test_same_numbers DATA NAME ...` stores anew what is named, and nothing else; it must be mended.
"""

import json
import platform
import re
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from src.training.experiment import run
from tests.configs import composed

STORED = Path(__file__).parent / "fixtures" / "same_numbers.json"
LOOSE = 2e-2  # relative, on other processors: a few optimiser steps magnify their rounding
ONE_POINT = 2e-2 + 1e-9  # absolute: one of 50 test points that has another neighbour, and the rounding of 1 / 50
CONVOLUTIONS = (
    1e-6  # relative, on hosts whose processors have one name: they round the nets of rotated MNIST differently
)
OF_THE_MACHINE = {"seconds_per_epoch", "peak_memory_mb"}
NEWER = {"path_rmse_quadratic"}  # scores that came after the numbers were stored; their own tests check them

QUICK = "trainer.max_epochs=3 evaluation.condition_on=60 evaluation.active_sets=2 trainer.enable_progress_bar=false"
SMALL = f"{QUICK} dataset.max_train=200 dataset.max_test=50 dataset.batch_size=100 active_set.size=20"
FULL = f"{QUICK} dataset.max_train=120 dataset.max_test=30 dataset.batch_size=full active_set.size=20"
VIEWS = f"{QUICK} dataset.max_train=300 dataset.max_test=60 dataset.batch_size=100"
BALL = (
    f"{QUICK} dataset.batch_videos=2 dataset.steps_per_epoch=2 dataset.num_train_videos=4 dataset.num_test_videos=3 "
    "active_set.size=20"
)

COMMANDS = {
    "sas": f"model=sas dataset=digits {SMALL}",
    "sas-free": f"model=sas dataset=digits {SMALL} model.amortised=false",
    "sas-random": f"model=sas dataset=digits {FULL} active_set=random",
    "sas-evidence": f"model=sas dataset=digits {SMALL} evaluation.exact_evidence=true optimizer=adamw",
    "sas-mnist": f"model=sas dataset=mnist {SMALL} encoder=conv kernel=matern52",
    "bayesian_sas": f"model=bayesian_sas dataset=digits {SMALL} model.latent_dim=3 kernel=rbf_ard",
    "bayesian_sas-free-full": f"model=bayesian_sas dataset=digits {SMALL} model.amortised=false model.posterior=full",
    "bayesian_sas-float64": f"model=bayesian_sas dataset=mnist {SMALL} trainer.precision=64-true",
    "gplvm": f"model=gplvm dataset=digits {FULL} kernel=arc_cosine",
    "gplvm-free": f"model=gplvm dataset=mnist {SMALL} model.amortised=false",
    "bayesian_gplvm-svi": f"model=bayesian_gplvm dataset=digits {SMALL} model.num_inducing=15",
    "bayesian_gplvm-sampled": (
        f"model=bayesian_gplvm dataset=mnist {SMALL} model.num_inducing=15 model.samples=2 kernel=matern52"
    ),
    "bayesian_gplvm-collapsed": (
        f"model=bayesian_gplvm dataset=digits {FULL} model.num_inducing=15 model.bound=collapsed "
        "model.amortised=false model.posterior=full"
    ),
    "vae": f"model=vae dataset=digits {SMALL} optimizer.schedule=late",
    "vae-free-full": f"model=vae dataset=mnist {SMALL} model.amortised=false model.posterior=full",
    "svgp_vae-learned": f"model=svgp_vae dataset=digits {SMALL} model.num_inducing=15",
    "svgp_vae-geco": f"model=svgp_vae dataset=rotated_mnist {VIEWS}",
    "gp_vae-rotated": f"model=gp_vae dataset=rotated_mnist {FULL}",
    "cvae-rotated": f"model=cvae dataset=rotated_mnist {VIEWS}",
    "svgp_vae-ball": f"model=svgp_vae dataset=moving_ball {BALL}",
    "gp_vae-ball": f"model=gp_vae dataset=moving_ball {BALL}",
    "cvae-ball": f"model=cvae dataset=moving_ball {BALL}",
    "vae-ball": f"model=vae dataset=moving_ball {BALL}",
    "sas-ball": f"model=sas dataset=moving_ball {BALL}",
}

# What changed on purpose since the numbers were stored, with its new value in the file.
MENDED = {
    "gp_vae-ball": "bits have a probability (nlp), not the density of a Normal with a clamped variance (nlpd)",
    "svgp_vae-ball": "the same",
    "cvae-ball": "the condition is no latent dimension any more: path_rmse is of z alone",
    "cvae-rotated": "the same: one latent sample has other random numbers (mse_sample)",
    "bayesian_sas": "length scales start longer in more than two latent dimensions",
    "bayesian_sas-free-full": "the search for q(z) of test points starts without correlation and has its own seed",
    "bayesian_gplvm-collapsed": "the same",
    "vae-free-full": "the same",
    "sas-evidence": "weight decay is for nets, not for kernel and noise",
    "bayesian_gplvm-svi": "with an encoder, inducing inputs start where the prior is, and not at 0",
    "bayesian_gplvm-sampled": "the same",
    "vae-ball": "bits, as the GP-VAEs beside it have",
}


def metrics_of(command: str, data: Path, outputs: Path) -> dict[str, float]:
    """What a run ends with, but for what it took."""
    overrides = command.split()
    model, dataset = (overrides[i].partition("=")[2] for i in (0, 1))
    config = composed(*overrides, f"paths.data={data}", f"paths.outputs={outputs}")
    return {key: value for key, value in run(config, model, dataset).items() if key not in OF_THE_MACHINE | NEWER}


def machine() -> dict[str, str]:
    """What decides the last digits of a number."""
    cpu = Path("/proc/cpuinfo")
    known = (
        re.findall(r"^(?:cpu family|model|model name|stepping)\s*:\s*(.*)$", cpu.read_text(), re.M)[:4]
        if cpu.exists()
        else []
    )
    return {"processor": " ".join(known) or platform.processor(), "torch": torch.__version__}


def test_only_what_is_named_has_changed_since_the_numbers_were_stored() -> None:
    stored = json.loads(STORED.read_text())
    changes = {
        name: {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
        for name, now in stored["mended"].items()
        if (was := stored["metrics"][name])
    }
    of_the_test = stored["metrics"]["bayesian_sas-free-full"].keys() - {"objective", "epochs"}
    assert changes == {
        "gp_vae-ball": {"nlpd", "nlp"},
        "svgp_vae-ball": {"nlpd", "nlp"},
        "cvae-ball": {"path_rmse"},
        "cvae-rotated": {"mse_sample"},
        "bayesian_sas": of_the_test | {"objective"},
        "bayesian_sas-free-full": of_the_test,
        "bayesian_gplvm-collapsed": {"rmse", "mae", "nlpd", "accuracy_1nn"},
        "vae-free-full": {"rmse", "mae", "nlpd", "accuracy_1nn"},
        "bayesian_gplvm-svi": stored["metrics"]["bayesian_gplvm-svi"].keys() - {"epochs"},
        "bayesian_gplvm-sampled": stored["metrics"]["bayesian_gplvm-sampled"].keys() - {"epochs"},
        "vae-ball": {*stored["metrics"]["vae-ball"], "nlp"} - {"epochs"},
        "sas-evidence": stored["metrics"]["sas-evidence"].keys() - {"accuracy_1nn", "evidence_points", "epochs"},
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gives_the_numbers_that_were_stored(name: str, data_root: Path, tmp_path: Path) -> None:
    stored = json.loads(STORED.read_text())
    expected = stored["mended" if name in MENDED else "metrics"][name]
    metrics = metrics_of(COMMANDS[name], data_root, tmp_path)
    if machine() == stored["machines"].get(name, stored["machine"]):
        assert metrics == (pytest.approx(expected, rel=CONVOLUTIONS) if "rotated_mnist" in COMMANDS[name] else expected)
    else:
        assert metrics == pytest.approx(expected, rel=LOOSE, abs=ONE_POINT)


def store(data: Path, *names: str) -> None:
    """Run what was mended, and keep its new numbers, and whose they are, beside the old ones."""
    assert set(names) <= MENDED.keys()
    torch.set_num_threads(1)
    stored = json.loads(STORED.read_text())
    with tempfile.TemporaryDirectory() as outputs:
        stored["mended"] |= {name: metrics_of(COMMANDS[name], data, Path(outputs)) for name in names}
    stored["machines"] |= {name: machine() for name in names}
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    store(Path(sys.argv[1]), *sys.argv[2:])
