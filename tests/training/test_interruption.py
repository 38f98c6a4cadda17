"""A run that is stopped at any moment and started again ends with the same numbers as one that never was."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from src.models.learning import Learner
from src.runs import files, record
from src.runs.errors import Interrupted, UserError
from src.training import experiment
from src.training.checkpoints import Checkpoints
from tests.training.test_experiment import SAME, small_run
from tests.training.two_phases import OVERRIDES as TWO_PHASES

STEPS = 6  # of the whole run: 3 epochs of 2 steps
OFTEN = "checkpoint_minutes=0"  # after every step


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that start with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.test_interruption"])
    return context


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    folder = small_run(tmp_path_factory.mktemp("whole"), model="bayesian_sas")
    return same(files.read_json(folder / "metrics.json"))


def same(metrics: dict[str, float]) -> dict[str, float]:
    return {key: metrics[key] for key in SAME}


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def at_step(step: int, number: signal.Signals) -> None:
    """Send a signal to this process in the middle of a step."""
    seed_step = Learner.seed_step

    def seeded(model: Learner, current: int) -> None:
        if current == step:
            send(number)
        seed_step(model, current)

    Learner.seed_step = seeded  # type: ignore[method-assign,assignment]


def in_a_checkpoint(count: int, number: signal.Signals) -> None:
    """Send it when a checkpoint is written, but not yet in its place."""
    sync, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        calls.append(name) if name.startswith(".last") else None
        if len(calls) == count and name == calls[-1]:
            send(number)
        sync(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def between_two_checkpoints(count: int, number: signal.Signals) -> None:
    """Send it when the last checkpoint has become the previous one, and the new one is not in its place."""
    replace, calls = Path.replace, []

    def replaced(path: Path, target: Path) -> Path:
        result = replace(path, target)
        if target.name == "previous.ckpt":
            calls.append(path)
            if len(calls) == count:
                send(number)
        return result

    Path.replace = replaced  # type: ignore[method-assign,assignment]


def in_the_evaluation(_: int, number: signal.Signals) -> None:
    """Send it when the model is trained and kept."""
    scored = experiment.evaluate

    def evaluate(*arguments: Any, **settings: Any) -> dict[str, float]:
        send(number)
        return scored(*arguments, **settings)

    experiment.evaluate = evaluate


def in_the_figures(_: int, number: signal.Signals) -> None:
    """Send it when all is scored, but no figure drawn."""

    def draw(subject: Any, folder: Path, chosen: Any = None) -> dict[str, Exception]:
        send(number)
        return {}

    experiment.registry.draw = draw


def stopped_run(
    outputs: Path,
    disturb: Callable[[int, signal.Signals], None],
    when: int,
    number: int,
    overrides: tuple[str, ...] = (),
    model: str = "bayesian_sas",
) -> None:
    """In a process of its own: a run to which something happens."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells take from what runs in the background
    disturb(when, signal.Signals(number))
    small_run(outputs, OFTEN, *overrides, model=model)


MOMENTS = [(at_step, step) for step in range(STEPS)] + [
    (in_a_checkpoint, 1),
    (in_a_checkpoint, 3),
    (between_two_checkpoints, 2),
    (in_the_evaluation, 0),
    (in_the_figures, 0),
]


@pytest.mark.parametrize(("disturb", "when"), MOMENTS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_killed_at_any_moment(
    disturb: Callable[..., None], when: int, processes: Any, never_stopped: dict[str, float], tmp_path: Path
) -> None:
    process = processes.Process(target=stopped_run, args=(tmp_path, disturb, when, signal.SIGKILL))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    assert files.read_json(folder / "record.json")["status"] == "running" and record.status(folder) == "interrupted"
    small_run(tmp_path, model="bayesian_sas")
    assert same(files.read_json(folder / "metrics.json")) == never_stopped
    assert not list(folder.glob("*last*")) and len((folder / "history.csv").read_text().splitlines()) == 4


COLLAPSED = ("model.bound=collapsed", "model.num_inducing=20", "model.amortised=false", "dataset.batch_size=full")
LEARNING = {  # model, overrides and steps: inside a phase, at its borders, and with the memory of L-BFGS
    "two phases": ("vae", TWO_PHASES, 8),
    "L-BFGS": ("bayesian_gplvm", ("optimizer=lbfgs", "trainer.max_epochs=4", *COLLAPSED), 4),
}


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """The metrics of each kind of learning, but for what it took."""
    folders = {
        name: small_run(tmp_path_factory.mktemp("whole"), *overrides, model=model)
        for name, (model, overrides, _) in LEARNING.items()
    }
    return {name: but_for_time(files.read_json(folder / "metrics.json")) for name, folder in folders.items()}


def but_for_time(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if key not in ("seconds_per_epoch", "peak_memory_mb")}


@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name, (*_, steps) in LEARNING.items() for step in range(steps)]
)
def test_killed_at_any_step_of_any_learning(
    name: str, step: int, processes: Any, never_killed: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    model, overrides, _ = LEARNING[name]
    process = processes.Process(target=stopped_run, args=(tmp_path, at_step, step, signal.SIGKILL, overrides, model))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    assert (folder / "last.ckpt").exists() == (step > 0)
    small_run(tmp_path, *overrides, model=model)
    assert but_for_time(files.read_json(folder / "metrics.json")) == never_killed[name]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)], ids=["SIGTERM", "Ctrl-C"])
@pytest.mark.parametrize(("disturb", "when"), [(at_step, 2), (in_the_evaluation, 0)], ids=["training", "evaluation"])
def test_stopped_by_a_signal(
    disturb: Callable[..., None],
    when: int,
    number: int,
    code: int,
    processes: Any,
    never_stopped: dict[str, float],
    tmp_path: Path,
) -> None:
    process = processes.Process(target=stopped_run, args=(tmp_path, disturb, when, number))
    process.start()
    process.join()
    assert process.exitcode == code
    (folder,) = tmp_path.iterdir()
    record = files.read_json(folder / "record.json")
    assert record["status"] == "interrupted" and record["seconds"] > 0
    small_run(tmp_path, model="bayesian_sas")
    assert same(files.read_json(folder / "metrics.json")) == never_stopped
    assert files.read_json(folder / "record.json")["seconds"] > record["seconds"]


def test_a_time_budget_stops_cleanly_and_the_next_start_goes_on(
    never_stopped: dict[str, float], tmp_path: Path
) -> None:
    for _ in range(STEPS - 1):  # a step each, as no time at all is allowed
        with pytest.raises(Interrupted, match=r"trainer\.max_time is over; the same command continues it"):
            small_run(tmp_path, "trainer.max_time=00:00:00:00", model="bayesian_sas")
        assert record.status(next(tmp_path.iterdir())) == "interrupted"
    folder = small_run(tmp_path, "trainer.max_time=00:00:00:00", model="bayesian_sas")
    assert same(files.read_json(folder / "metrics.json")) == never_stopped


def test_a_time_budget_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.max_time=soon is not of the form days:hours:minutes:seconds"):
        small_run(tmp_path, "trainer.max_time=soon")


def test_a_run_that_is_asked_to_stop_does_and_can_go_on(
    never_stopped: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_start", ask)
        with pytest.raises(Interrupted, match="it was cancelled"):
            small_run(tmp_path, model="bayesian_sas")
    (folder,) = tmp_path.iterdir()
    assert record.status(folder) == "interrupted" and (folder / "last.ckpt").exists()
    record.withdraw_stop(folder)
    small_run(tmp_path, model="bayesian_sas")
    assert same(files.read_json(folder / "metrics.json")) == never_stopped


def ask(checkpoints: Checkpoints, *_: object) -> None:
    record.ask_to_stop(checkpoints.folder)
    checkpoints.looked -= 2  # seconds: it looks once in a while only


def test_a_dead_owner_is_recognised_and_a_living_one_named(processes: Any, tmp_path: Path) -> None:
    ready, leave = processes.Event(), processes.Event()
    owner = processes.Process(target=own, args=(tmp_path / "run", ready, leave))
    owner.start()
    assert ready.wait(60)
    assert record.status(tmp_path / "run") == "running"
    with (
        pytest.raises(UserError, match=f"is being worked on by process {owner.pid} on"),
        record.keep(tmp_path / "run", {}),
    ):
        pass
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert record.status(tmp_path / "run") == "interrupted"


def own(folder: Path, ready: Any, leave: Any) -> None:
    with record.keep(folder, {}):
        ready.set()
        leave.wait(60)


def test_a_full_disk_is_one_sentence_and_the_run_can_go_on(
    processes: Any, never_stopped: dict[str, float], tmp_path: Path
) -> None:
    result = processes.Queue()
    process = processes.Process(target=run_with_little_space, args=(tmp_path, result))
    process.start()
    kind, sentence = result.get(timeout=60)
    process.join()
    assert kind == "OSError" and "too large" in sentence
    (folder,) = tmp_path.iterdir()
    assert record.status(folder) == "interrupted"
    small_run(tmp_path, model="bayesian_sas")
    assert same(files.read_json(folder / "metrics.json")) == never_stopped


def run_with_little_space(outputs: Path, result: Any) -> None:
    """No file may be larger than 100 kB, which stands for a full disk: no checkpoint fits."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        small_run(outputs, model="bayesian_sas")
    except OSError as error:
        result.put((type(error).__name__, str(error)))


def test_a_folder_that_vanishes_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(Checkpoints, "on_train_start", lambda self, *_: shutil.rmtree(self.folder))
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        small_run(tmp_path)


def test_a_record_edited_by_hand(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    (folder / "metrics.json").unlink()
    assert record.status(folder) == "interrupted"  # done it says, but there is nothing to show
    small_run(tmp_path)
    assert record.status(folder) == "done"
    (folder / "record.json").write_text('{"status": "done",')
    with pytest.raises(UserError, match=r"record\.json is not valid JSON"):
        small_run(tmp_path)
