"""Mistakes to plant in src/evaluation, each of which the mirrored test file must find."""

from tests.planting import Mistake, mistake


def files(name: str) -> tuple[str, str]:
    return f"src/evaluation/{name}.py", f"tests/evaluation/test_{name}.py"


PLANTED: list[Mistake] = [
    mistake("all active sets are the same", files("reconstruction"), "stream(seed, size, draw)", "stream(seed, size)"),
    mistake(
        "missing values count as predicted",
        files("reconstruction"),
        "chunk.x.numel() if chunk.mask is None else int(chunk.mask.sum())",
        "chunk.x.numel()",
    ),
    mistake("errors of missing values count", files("reconstruction"), "masked(x - mean, chunk.mask)", "x - mean"),
    mistake(
        "the density of a mixture is a sum",
        files("reconstruction"),
        ".logsumexp(0) - math.log(len(givens))",
        ".logsumexp(0)",
    ),
    mistake(
        "the density of a mixture is that of the mean log density",
        files("reconstruction"),
        "torch.stack(log_densities).logsumexp(0) - math.log(len(givens))",
        "torch.stack(log_densities).mean(0)",
    ),
    mistake("bits have a density", files("reconstruction"), "model.likelihood.score)", '"nlpd")'),
    mistake("the mean squared error without its root", files("reconstruction"), "totals[:, 0].sqrt_()", "pass"),
    mistake("latents of other points", files("reconstruction"), "z[chunk.index]", "z[: len(chunk)]"),
    mistake("the sd of a population", files("reconstruction"), "single.std(0)", "single.std(0, correction=0)"),
    mistake(
        "all of the data is drawn several times",
        files("reconstruction"),
        "draws = 1 if size == len(train) else count",
        "draws = count",
    ),
    mistake("a log density for a loss", files("reconstruction"), "-d.sum()", "d.sum()"),
    mistake("test points are seen", files("task"), "self.data.test, seen=False", "self.data.test, seen=True"),
    mistake("training points are unseen", files("task"), "self.data.train, seen=True", "self.data.train, seen=False"),
    mistake("latents lose their rows", files("task"), "z[chunk.index] =", "z[: len(chunk)] ="),
    mistake(
        "videos are cut",
        files("task"),
        "tqdm(split.chunks(CHUNK),",
        "tqdm(map(split.__getitem__, torch.arange(len(split)).split(CHUNK)),",
    ),
    mistake(
        "latents are encoded for each task",
        files("task"),
        "    @cached_property\n    def test_latents",
        "    @property\n    def test_latents",
    ),
    mistake(
        "every chunk is told the first auxiliary columns",
        files("task"),
        "aux.to(model.device).split(chunk)",
        "[aux.to(model.device)[:chunk]] * len(z)",
    ),
    mistake(
        "neighbours are test points",
        files("neighbours"),
        "accuracy_1nn(subject.train_latents, train, ",
        "accuracy_1nn(subject.test_latents, test, ",
    ),
    mistake("real targets are labels", files("neighbours"), 'data.facts.target.kind == "class" and ', ""),
    mistake("variance for sd", files("generation"), "q.stddev * noise", "q.variance * noise"),
    mistake("a seed of its own for each run", files("generation"), "manual_seed(0)", "manual_seed(subject.seed)"),
    mistake(
        "missing values of views count",
        files("generation"),
        "(difference if test.mask is None else difference[test.mask])",
        "difference",
    ),
    mistake("the error of one coordinate", files("paths"), ".square().sum(-1).mean()", ".square().mean()"),
    mistake(
        "a linear map without a constant",
        files("paths"),
        "centre, z = path.mean(0), z - z.mean(0)",
        "centre = path.mean(0)",
    ),
    mistake(
        "N for the number of points",
        files("evidence"),
        "kernel, noise, model.active_size, len(x))",
        "kernel, noise, model.active_size, len(train))",
    ),
    mistake(
        "nats per point for nats per value",
        files("evidence"),
        "blocked_log_density(x, z, kernel, noise) / x.numel()",
        "blocked_log_density(x, z, kernel, noise) / len(x)",
    ),
    mistake(
        "all estimates are of one batch",
        files("evidence"),
        "torch.randperm(num_data, generator=generator)[:batch_size]",
        "torch.arange(batch_size)",
    ),
    mistake(
        "nats per point for nats per target", files("prediction"), "p.p.sum().item() / y.numel()", "p.p.mean().item()"
    ),
    mistake("the accuracy for the error rate", files("prediction"), "log_p.argmax(-1) != y", "log_p.argmax(-1) == y"),
    mistake(
        "the squared error of a target", files("prediction"), "error.square().mean().sqrt()", "error.square().mean()"
    ),
    mistake("ten bins", files("prediction"), "BINS = 15", "BINS = 10"),
    mistake(
        "bins count alike",
        files("prediction"),
        "* found.points).sum().item() / found.points.sum().item()",
        ").mean().item()",
    ),
    mistake("calibration of the true class", files("prediction"), "(guess == y).double()", "torch.ones_like(top)"),
    mistake("intervals of twice the coverage", files("prediction"), "<= c / 200", "<= c / 100"),
    mistake(
        "SMSE by the test targets",
        files("prediction"),
        "train.double().var(0, correction=0)",
        "y.double().var(0, correction=0)",
    ),
    mistake(
        "true and predicted class swapped",
        files("prediction"),
        "num_classes * y + p.argmax(-1)",
        "num_classes * p.argmax(-1) + y",
    ),
    mistake("the least confident mistakes", files("prediction"), "argsort(descending=True)", "argsort()"),
    mistake(
        "right predictions are shown as wrong", files("prediction"), "(guess != y).nonzero()", "(guess == y).nonzero()"
    ),
    mistake("rows in the order of chunks", files("prediction"), "torch.cat(field)[order]", "torch.cat(field)"),
    mistake("a mixture of log densities", files("prediction"), "p.logsumexp(0) - math.log(len(each))", "p.mean(0)"),
    mistake(
        "the mixture for the single sets",
        files("prediction"),
        "mean([scores[name] for scores in single])",
        "mixture[name]",
    ),
    mistake(
        "the test split is validated",
        files("registry"),
        "replace(subject, data=subject.data.tested_on_validation())",
        "subject",
    ),
    mistake(
        "every task scores the validation split",
        files("registry"),
        "for task in fitting(held_out) if task.validated",
        "for task in fitting(held_out)",
    ),
    mistake("the loss for the objective", files("cost"), '-rows[-1]["loss"]', 'rows[-1]["loss"]'),
    mistake(
        "the time of the first epoch",
        files("cost"),
        'median(row["seconds"] for row in rows)',
        'rows[0]["seconds"]',
    ),
    mistake(
        "latents of other points in the explorer",
        files("latent_space"),
        "subject.test_latents[drawn.index]",
        "subject.test_latents[: len(drawn)]",
    ),
    mistake("the grid is turned", files("latent_space"), "grid.ticks[0].numpy()", "grid.ticks[1].numpy()"),
    mistake("errors of missing values are drawn", files("latent_space"), "masked(squared, observed)", "squared"),
    mistake("only the scores of the last task", files("registry"), "found |= task.scores", "found = task.scores"),
    mistake(
        "an imported task is a task again",
        files("registry"),
        "kind.__module__ == module.__name__ and kind is not Task",
        "kind is not Task",
    ),
    mistake("every task fits", files("registry"), " if task.fits(subject.model, subject.data)", ""),
    mistake("rows of images from the top", files("figures"), "mean.flip(0).clamp(0, 1)", "mean.clamp(0, 1)"),
    mistake("classes share a row", files("canvas"), "(np.searchsorted(classes, labels) + jitter)", "jitter"),
]
