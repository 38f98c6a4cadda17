"""One experiment, from its plain config to its results on disk."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from pytorch_lightning import seed_everything
from pytorch_lightning.utilities.seed import isolate_rng

from src.data.module import DataModule
from src.evaluation import registry, search
from src.evaluation.task import Scores, Subject
from src.models.base import Model, build
from src.models.diagnosis import findings
from src.runs import code, files, identity, record, trials
from src.runs.bars import bars
from src.runs.identity import Config
from src.runs.published import published_values
from src.runs.specs import make
from src.training.dashboards import About, Dashboards
from src.training.history import History
from src.training.pruning import Pruning
from src.training.trainer import fit, lightning_trainer, make_trainer


def run(config: Config, model_name: str, dataset_name: str) -> Scores:
    """Train, evaluate and record. A finished run is shown, not repeated. Nothing is written before all checks pass."""
    outputs = Path(config["paths"]["outputs"])
    folder = outputs / identity.folder_name(config, model_name, dataset_name)
    if record.status(folder) == "done" and not config["rerun"]:
        print(f"This run is finished (rerun=true repeats it).{other_code(folder)}")
        print(summary(folder, config, model_name, dataset_name))
        return files.read_json(folder / "metrics.json")
    record.check_writable(outputs)
    with bars(wanted=config["trainer"]["enable_progress_bar"]):
        metrics = train_and_evaluate(config, folder, model_name, dataset_name)
    if metrics:
        print(summary(folder, config, model_name, dataset_name))
    return metrics


def train_in_memory(config: Config, data: DataModule) -> tuple[Model, History]:
    """A trained model without a run's folder, with the numbers of one; random numbers elsewhere stay as they were."""
    with isolate_rng(), bars(wanted=config["trainer"]["enable_progress_bar"]):
        seed_everything(config["seed"], verbose=False)
        data.setup()
        model = make_model(config, data)
        history = History(None, watcher(config, lambda: Subject(model, data, config["evaluation"], config["seed"])))
        registry.check(model, data, config["evaluation"])
        trainer = lightning_trainer(config["trainer"], history, enable_checkpointing=False)
        trainer.fit(model.train(), datamodule=data)
        model.to(trainer.strategy.root_device).eval()
    model.trainer = data.trainer = None  # what holds the data, and cannot be pickled
    return model, history


def train_and_evaluate(config: Config, folder: Path, model_name: str, dataset_name: str) -> Scores:
    """The metrics of a new or resumed run; none in processes other than the first."""
    seed_everything(config["seed"], verbose=False)
    data = make_data(config)
    model = make_model(config, data)
    registry.check(model, data, config["evaluation"])
    search.check(model, data, search.metric_of(config))
    history = History(folder / "history.csv", watcher(config, lambda: subject()))

    def subject() -> Subject:
        return Subject(model, data, config["evaluation"], config["seed"], history.rows)

    tags = [dataset_name, *identity.active_set(config)]
    about = About(folder.name, identity.fingerprint(config), config["group"], model_name, tags, config)
    boards = Dashboards(config["logger"], history, folder, about, lambda: draw_now(subject(), folder / "figures"))
    trial = trials.assigned(folder)
    pruning = [Pruning(folder, trial, lambda: score_so_far(subject(), search.metric_of(config)))] if trial else []
    trainer = make_trainer(config, history, folder, boards, *pruning)
    if not trainer.is_global_zero:  # only the first of several processes keeps the record
        fit(trainer, model, data, folder)
        return {}
    record.make_way(folder)
    with record.keep(folder, config, threads=torch.get_num_threads()) as kept, boards:
        fit(trainer, model, data, folder)
        kept["notes"] = notes(history.rows)
        metrics = evaluate(subject(), folder)
        boards.finish(metrics)
    record.forget_checkpoints(folder)
    return metrics


def evaluate(subject: Subject, folder: Path) -> Scores:
    """Score, save and draw. The metrics come first: a figure that cannot be drawn does not fail a run."""
    metrics = registry.scores(subject)
    files.write_json(folder / "metrics.json", metrics)
    for task, error in registry.draw(subject, folder / "figures").items():
        print(f"A figure of the task {task} could not be drawn ({record.one_line(error)}); see {folder / 'log.txt'}")
        record.log(folder, "".join(traceback.format_exception(error)))
    registry.keep(subject, folder / "explorer.npz")
    return metrics


def other_code(folder: Path) -> str:
    """A sentence for a finished run if the code has changed since, in files that git knows or not."""
    then = files.read_json(folder / "record.json").get("code")
    changed = then is not None and then != code.digest()
    return " The code or its configs have changed since; the numbers are those of then." if changed else ""


def make_data(config: Config) -> DataModule:
    """The dataset of a config, loaded."""
    data: DataModule = make(config["dataset"])
    data.setup()
    return data


def make_model(config: Config, data: DataModule) -> Model:
    """The model of a config; an error if it cannot be trained on these data."""
    model: Model = build(config["model"], data.facts)
    model.check(data.facts)
    return model


def load_model(folder: Path) -> Model:
    """The trained model of a run, from its checkpoint alone."""
    model: Model = Model.load_from_checkpoint(folder / "model.ckpt")
    return model


def watcher(config: Config, subject: Callable[[], Subject]) -> Callable[[int], Scores]:
    """What `watch` has to say after an epoch."""
    return lambda epoch: watch(subject(), epoch, config["trainer"]["max_epochs"])


def watch(subject: Subject, epoch: int, epochs: int) -> Scores:
    """What a model that is still training tells about itself and, if the settings ask for it, its scores.

    Scores come every so many epochs and after the last.
    """
    every = subject.settings.get("watch_every")
    with evaluating(subject.model):
        traced = registry.trace(subject)
        if every is None or ((epoch + 1) % every and epoch + 1 < epochs):
            return traced
        subject.model.finalise(subject.data)
        return traced | registry.watch(subject)


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Have a model predict as it does after its training."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def notes(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """What the last epoch of a history shows to have gone wrong: unused latent dimensions, noise in place of a fit."""
    last = rows[-1] if rows else {}
    return findings({name.removeprefix(registry.WATCHED): value for name, value in last.items()})


def score_so_far(subject: Subject, metric: str) -> float:
    """The score of a model that is still training, for the search that it belongs to."""
    if metric == search.OBJECTIVE:
        return subject.history[-1]["loss"]
    subject.model.finalise(subject.data)
    return search.score_now(subject, metric)


def draw_now(subject: Subject, folder: Path) -> None:
    """The figures of a model that is still training; of the model, only what prediction needs is updated."""
    subject.model.finalise(subject.data)
    registry.draw(subject, folder)


def summary(folder: Path, config: Config, model_name: str, dataset_name: str) -> str:
    """The metrics of a finished run beside the published ones, and where everything is."""
    metrics = files.read_json(folder / "metrics.json")
    values, sources = published_values(model_name, dataset_name, config, metrics)
    warnings = [f"note: {text}" for text in files.read_json(folder / "record.json").get("notes", [])]
    table = "\n".join([registry.summary(metrics, values), *sources, *([""] if warnings else []), *warnings])
    latent_map = folder / "figures" / "latent_map.png"
    return f"\n{table}\n\nrun folder: {folder}" + (f"\nlatent map: {latent_map}" if latent_map.exists() else "")
