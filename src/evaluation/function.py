"""The density of a function's own values, if the test targets are without noise."""

import math
from typing import Any

import torch

from src.evaluation.task import CHUNK, Metric, Scores, Subject, Task
from src.models.capabilities import PredictsFunctions


class FunctionValues(Task):
    """The mean log density of noise-free test targets under p(f(x)), in nats per target (Meng et al., Table 1)."""

    name = "function"
    order = 6
    metrics = {"function_log_density": Metric("log density of f", "higher")}  # noqa: RUF012

    def fits(self, model: Any, data: Any) -> bool:
        """Models that know p(f(x)), and test targets without noise."""
        return isinstance(model, PredictsFunctions) and data.noise_free_test

    def scores(self, subject: Subject) -> Scores:
        """Over the test split."""
        model, test = subject.model, subject.data.test
        total = 0.0
        for chunk in test.chunks(CHUNK):
            batch = chunk.to(model.device)
            assert batch.y is not None
            p = model.predict_function(batch.x, subject.given)
            total += p.log_prob(batch.y.to(p.mean)).sum(dtype=torch.float64).item()
        assert test.y is not None
        return {"function_log_density": total / math.prod(test.y.shape)}
