"""Prediction of targets by supervised models: errors, and the density or probability of the true targets."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from src.evaluation.task import CHUNK, Metric, Scores, Subject, Task
from src.models.capabilities import Predicts


class Prediction(Task):
    """Scores on the test split: error rate and NLP for classes, RMSE and NLPD for real targets."""

    name = "prediction"
    order = 5
    metrics = {  # noqa: RUF012
        "error_rate": Metric("error rate"),
        "target_nlp": Metric("NLP of the class"),
        "target_rmse": Metric("RMSE of the target"),
        "target_nlpd": Metric("NLPD of the target", digits=3),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models that predict, and a test split with targets."""
        return isinstance(model, Predicts) and data.test.y is not None

    def scores(self, subject: Subject) -> Scores:
        """Means over the test points; densities in nats per target."""
        model, test = subject.model, subject.data.test
        assert test.y is not None
        totals = torch.zeros(2, dtype=torch.float64)
        for chunk in test.chunks(CHUNK):
            batch = chunk.to(model.device)
            totals += chunk_totals(model.predict(model.as_float(batch.x)), batch.y)
        error, nats = (totals / test.y.numel()).tolist()
        if subject.data.facts.target.kind == "class":
            return {"error_rate": error, "target_nlp": nats}
        return {"target_rmse": error**0.5, "target_nlpd": nats}


def chunk_totals(p: Distribution, y: Tensor | None) -> Tensor:
    """Summed errors (wrong classes, or squared differences) and minus log densities, [2]."""
    assert y is not None
    wrong = (p.probs.argmax(-1) != y) if isinstance(p, Categorical) else (p.mean - y).square()
    return torch.stack([wrong.sum(dtype=torch.float64), -p.log_prob(y).sum(dtype=torch.float64)]).cpu()
