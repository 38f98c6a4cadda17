"""Names and numbers as people read them; what is known of a metric comes from the task that defines it."""

from functools import cache

from src.evaluation import registry
from src.evaluation.task import Metric
from src.runs.errors import UserError
from src.runs.identity import Value
from src.runs.published import NAMED, Place, TableSpec, name_of


@cache
def metric_of(name: str) -> Metric:
    """Label, direction and digits of a metric; a metric that no task defines has its own name and no direction."""
    return registry.metric(name) or Metric(name, "neither", 3)


def check_metrics(table: TableSpec) -> None:
    """Raise a UserError if a table has a metric that no task defines."""
    for name in table.metrics:
        if registry.metric(str(name)) is None:
            known = ", ".join(registry.metrics())
            raise UserError(f"table {table.name}: there is no metric {name}; the tasks define {known}")


def label(level: str, value: Value) -> str:
    """The value of a level: `SAS-GP`, `MNIST`, `RMSE`, `A = 100`, `num_inducing = 50`, `kernel = RBFKernel`."""
    if level in NAMED:
        return name_of(level, value)
    if level == "metric":
        return metric_of(str(value)).label
    text = "none" if value is None else str(value)
    return f"{short(level)} = {text.rpartition('.')[2] if level.endswith('._target_') else text}"


def labels(place: Place) -> tuple[str, ...]:
    """The values of all levels of a place."""
    return tuple(label(level, value) for level, value in place.items())


def short(level: str) -> str:
    """A for the active set, otherwise the last part of a setting's dotted name."""
    if level in ("active_set", "model.active_set"):
        return "A"
    return level.removesuffix("._target_").rpartition(".")[2]


def number(metric: str, value: float, sign: str = "") -> str:
    """A value with the digits of its metric; `sign` is a format such as `+`."""
    return minus(f"{value:{sign}.{metric_of(metric).digits}f}")


def minus(text: str) -> str:
    """A number with a real minus sign."""
    return text.replace("-", "\N{MINUS SIGN}")


def order(value: Value) -> tuple[int, float, str]:
    """Sort key: nothing, then numbers by value, then words."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, value)
