"""A run from its plain config to its results on disk."""

import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from statistics import median
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from src.data.module import DataModule
from src.evaluation import explorer
from src.evaluation.evidence import check_evidence
from src.evaluation.metrics import evaluate, latent_means, metrics_table
from src.models.base import Decoder
from src.runs import files, identity, record
from src.runs.aliases import find_class
from src.runs.errors import UserError
from src.runs.identity import Config
from src.runs.specs import make
from src.training import cluster
from src.training.callbacks import Checkpoints, History, Progress, written_by_first
from src.training.dashboards import About, Dashboards

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # its notes on every checkpoint are not our user's


def run(config: Config, model_name: str, dataset_name: str) -> dict[str, float]:
    """Train, evaluate and record; a finished run is shown, not done again. Nothing is written before all fits."""
    outputs = Path(config["paths"]["outputs"])
    folder = outputs / identity.folder_name(config, model_name, dataset_name)
    if record.status(folder) == "done" and not config["rerun"]:
        print(f"This run is finished (rerun=true does it again).\n{summary(folder)}")
        return files.read_json(folder / "metrics.json")
    record.check_writable(outputs)
    seed_everything(config["seed"], verbose=False)
    data = make_data(config)
    model = make_model(config, data)
    check_evidence(model, data, **config["evaluation"])
    history = History(folder / "history.csv")
    tags = [dataset_name, *identity.active_set(config)]
    about = About(folder.name, identity.fingerprint(config), config["group"], model_name, tags, config)
    boards = Dashboards(config["logger"], history, folder, about, lambda: draw_now(model, data, folder / "figures"))
    trainer = make_trainer(config, history, folder, boards)
    if not trainer.is_global_zero:  # of several processes the first keeps the record
        fit(trainer, model, data, folder)
        return {}
    record.make_way(folder)
    with record.keep(folder, config), boards:
        fit(trainer, model, data, folder)
        z = latent_means(model, data.test, seen=False)
        metrics = {**evaluate(model, data, z, seed=config["seed"], **config["evaluation"]), **cost(history)}
        draw_figures(model, data, z, folder / "figures")
        explorer.write(model, data, z, folder / "explorer.npz")
        files.write_json(folder / "metrics.json", metrics)
        boards.finish(metrics)
    record.forget_checkpoints(folder)
    print(summary(folder))
    return metrics


def make_data(config: Config) -> DataModule:
    """The dataset of a config, loaded."""
    data: DataModule = make(config["dataset"])
    data.setup()
    return data


def make_model(config: Config, data: DataModule) -> Decoder:
    """The model of a config, which these data fit."""
    model: Decoder = make(config["model"], shape=data.shape, num_data=len(data.train), _recursive_=False)
    model.check(data)
    return model


def make_trainer(config: Config, history: History, folder: Path, *callbacks: Callback) -> Trainer:
    """Lightning's trainer with our history, bar and checkpoints."""
    spec = dict(config["trainer"])
    checkpoints = Checkpoints(folder, config["checkpoint_minutes"], seconds(spec.pop("max_time")))
    bar = [Progress(history)] if spec["enable_progress_bar"] else []
    options = {"logger": False, "use_distributed_sampler": False, "plugins": [cluster.environment()]}
    spec.setdefault("profiler", Unprofiled())
    trainer: Trainer = make(spec, callbacks=[history, *bar, *callbacks, checkpoints], **options)
    if trainer.world_size > 1 and record.HOME in os.environ and not cluster.starts_processes():
        raise UserError(
            "a sweep cannot divide a run among several processes here, since Lightning starts each with the whole "
            "command: set trainer.devices=1, or use hydra/launcher=slurm with hydra.launcher.tasks_per_node"
        )
    return trainer


class Unprofiled(PassThroughProfiler):
    """No profile. Lightning's own makes a generator for every hook, which takes a hundredth of a SAS step's time."""

    def profile(self, action_name: str) -> Any:
        """Nothing to begin and nothing to end."""
        return nullcontext()


def seconds(max_time: str | dict[str, int] | None) -> float | None:
    """A time budget as Lightning takes them. Its own timer would count the time before a resume too."""
    try:
        return Timer(max_time).time_remaining()
    except (MisconfigurationException, TypeError) as error:
        raise UserError(f"trainer.max_time={max_time} is not of the form days:hours:minutes:seconds") from error


def fit(trainer: Trainer, model: Decoder, data: DataModule, folder: Path) -> None:
    """Train, from the last checkpoint where there is one, and keep the trained model in `model.ckpt`."""
    model.initialise(data)
    model.train()  # all GPyTorch kernels share a module, which an earlier model may have left in eval mode
    with stops_at_a_checkpoint():
        trainer.fit(model, datamodule=data, ckpt_path=newest_intact(folder), weights_only=True)
    model.to(trainer.strategy.root_device).eval()  # Lightning leaves it on the CPU
    model.finalise(data)
    with written_by_first(trainer, folder / "model.ckpt") as unfinished:
        trainer.save_checkpoint(unfinished, weights_only=True)


@contextmanager
def stops_at_a_checkpoint() -> Iterator[None]:
    """Leave SIGTERM to Lightning, which notes it, so that `Checkpoints` can stop the training after a step."""
    ours = signal.getsignal(signal.SIGTERM) == record.end_process
    if ours:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, record.end_process)


def newest_intact(folder: Path) -> Path | None:
    """The checkpoint to go on from: the last one, or the one before where the last is damaged or missing."""
    for path in (folder / name for name in record.CHECKPOINTS if (folder / name).exists()):
        try:
            torch.load(path, map_location="cpu", weights_only=True)
            return path
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            record.log(folder, f"{path.name} is damaged and left out: {error}")
    return None


def load_model(config: Config, folder: Path) -> Decoder:
    """The trained model of a run, from its checkpoint alone."""
    model_class: type[Decoder] = find_class(config["model"]["_target_"])
    return model_class.load_from_checkpoint(folder / "model.ckpt", map_location="cpu", weights_only=True).eval()


def cost(history: History) -> dict[str, float]:
    """What the training took."""
    return {
        "objective": -history.rows[-1]["loss"],
        "seconds_per_epoch": median(row["seconds"] for row in history.rows),
        "peak_memory_mb": peak_memory(),
        "epochs": len(history.rows),
    }


def peak_memory() -> float:
    """The most memory used so far, in MB: the GPU's where there is one, else the process's."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # Linux; getrusage would tell of the process that started this one, where that had more
        peak = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)
        if peak:
            return int(peak[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def draw_now(model: Decoder, data: DataModule, folder: Path) -> None:
    """The figures of a model that is still training: what it keeps for prediction is renewed, and nothing else."""
    model.finalise(data)
    draw_figures(model, data, latent_means(model, data.test, seen=False), folder)


def draw_figures(model: Decoder, data: DataModule, z: torch.Tensor, folder: Path) -> None:
    """The latent map of the test images, some of their reconstructions, and images decoded across the latent plane."""
    from src.evaluation import figures

    folder.mkdir(exist_ok=True)
    device = model.data_mean.device
    with torch.no_grad():
        given = model.given()

        def decode(z: torch.Tensor) -> torch.distributions.Normal:
            p = model.decode(z.to(device, model.data_mean.dtype), given)
            return torch.distributions.Normal(p.mean.cpu(), p.stddev.cpu(), validate_args=False)

        prediction = decode(z[:10])
        x = model.as_float(data.test.x[:10].to(device)).cpu()
        title = f"{type(model).__name__}, {len(z)} test images"
        figures.save(figures.latent_map(z, data.test.y, decode, title), folder / "latent_map.png")
        figures.save(figures.reconstructions(x, prediction.mean, prediction.stddev), folder / "reconstructions.png")
        figures.save(figures.decoded_grid(z, decode, data.shape), folder / "decoded_grid.png")


def summary(folder: Path) -> str:
    """The metrics of a finished run as a table, beside the published ones, and where everything is."""
    values, notes = published(folder)
    table = "\n".join([metrics_table(files.read_json(folder / "metrics.json"), values), *notes])
    return f"\n{table}\n\nrun folder: {folder}\nlatent map: {folder / 'figures' / 'latent_map.png'}"


def published(folder: Path) -> tuple[dict[str, str], list[str]]:
    """What papers report for a run's metrics, and in which table; a note where theirs is not the same quantity."""
    from src.report import records, tables

    found = tables.paper_tables([records.read_run(folder)], sweep=True)
    cells = [cell for table in found for cell in table.cells if cell.published and cell.values]
    sources = [f"published: {table.source}" for table in found if set(table.cells) & set(cells)]
    caveats = [f"{cell.place.metric}: {cell.caveat}" for cell in cells if cell.caveat]
    return {cell.place.metric: str(cell.published) for cell in cells}, [*([""] if cells else []), *sources, *caveats]
