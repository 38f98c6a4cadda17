"""Mistakes to plant in src/training, each of which the mirrored test file must find."""

from tests.planting import mistake

HISTORY = ("src/training/history.py", "tests/training/test_history.py")
CHECKPOINTS = ("src/training/checkpoints.py", "tests/training/test_checkpoints.py")
MLFLOW = ("src/training/mlflow_tracking.py", "tests/training/test_mlflow_tracking.py")
TRAINER = ("src/training/trainer.py", "tests/training/test_mixed_precision.py")
MIXED = ("src/training/mixed_precision.py", "tests/training/test_mixed_precision.py")
CLUSTER = ("src/training/cluster.py", "tests/training/test_cluster.py")

PLANTED = [
    mistake(
        "sums are not reset",
        HISTORY,
        "self.sums, self.seconds, self.started = {}, 0.0,",
        "self.seconds, self.started = 0.0,",
    ),
    mistake(
        "columns of the first row only",
        HISTORY,
        "for row in rows for name in row",
        "for row in rows[:1] for name in row",
    ),
    mistake("no previous checkpoint", CHECKPOINTS, "last.replace(previous)", "pass"),
    mistake(
        "short epochs have a checkpoint each", CHECKPOINTS, "every=min(self.seconds, SHARE * self.writing)", "every=0"
    ),
    mistake(
        "the last epoch has no checkpoint", CHECKPOINTS, "trainer.current_epoch + 1 == trainer.max_epochs", "False"
    ),
    mistake("mixed precision is everywhere", TRAINER, "    keep_to_layers(trainer)\n", ""),
    mistake("a whole step is rounded", MIXED, "return nullcontext()", "return super().forward_context()"),
    mistake("layers return half precision", MIXED, ".to(x.dtype)", ""),
    mistake("predictions are rounded", MIXED, "if not layer.training:", "if False:"),
    mistake("one task counts as several", CLUSTER, ") > 1", ") > 0"),
    mistake("the environment's server is ignored", MLFLOW, "os.environ.get(URI) or ", ""),
    mistake("a server is told where its files are", MLFLOW, 'if uri.startswith("sqlite:") else None', ""),
    mistake("passwords are shown", MLFLOW, 'return re.sub(r"//[^/@\\s]+@", "//", text)', "return text"),
]
