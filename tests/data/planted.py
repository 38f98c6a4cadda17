"""Mistakes to plant in src/data, each of which the mirrored test file must find."""

from tests.planting import mistake

BATCH = ("src/data/batch.py", "tests/data/test_batch.py")
FACTS = ("src/data/facts.py", "tests/data/test_facts.py")
SAMPLING = ("src/data/sampling.py", "tests/data/test_sampling.py")
MODULE = ("src/data/module.py", "tests/data/test_module.py")
ARRAYS = ("src/data/arrays.py", "tests/data/test_arrays.py")
BALL = ("src/data/moving_ball.py", "tests/data/test_moving_ball.py")
ROTATED = ("src/data/rotated_mnist.py", "tests/data/test_rotated_mnist.py")


PLANTED = [
    mistake(
        "the validation split stays in the training split",
        MODULE,
        "train.part((~held_out).nonzero().squeeze(1))",
        "train",
    ),
    mistake(
        "the same validation split for every seed", MODULE, "stream(self.seed, VALIDATION_STREAM)", "VALIDATION_STREAM"
    ),
    mistake(
        "groups are cut by the validation split",
        MODULE,
        "if train.groups is None else train.groups.unique(",
        "if True else train.groups.unique(",
    ),
    mistake(
        "the twin is tested on the test split",
        MODULE,
        "twin.test, twin.validation = self.validation, None",
        "twin.validation = None",
    ),
    mistake(
        "a part takes the first rows of targets, auxiliary columns and masks",
        BATCH,
        "None if values is None else values[rows]",
        "None if values is None else values[: len(rows)]",
    ),
    mistake(
        "a part of a part takes rows of the whole",
        BATCH,
        "rows if self.rows is None else self.rows[rows], self.file",
        "rows, self.file",
    ),
    mistake("chunks cut groups", BATCH, "if groups is None:", "if True:"),
    mistake("groups are not sorted", BATCH, "groups.argsort(stable=True)", "torch.arange(num_points)"),
    mistake("a full chunk does not take its last group", BATCH, "+ len(rows) > size", "+ len(rows) >= size"),
    mistake(
        "the last groups are lost",
        BATCH,
        "        chunk.append(rows)\n    yield torch.cat(chunk)",
        "        chunk.append(rows)",
    ),
    mistake(
        "a draw without its seed",
        BATCH,
        "torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))",
        "torch.randperm(len(self))",
    ),
    mistake("rows are read from the start of the file", BATCH, "self.start + size * row", "size * row"),
    mistake(
        "a slice of a mapped array reads the rows of the whole",
        BATCH,
        " if x.offset + x.nbytes == path.stat().st_size else None",
        "",
    ),
    mistake("a short read goes unnoticed", BATCH, "if read != places.nbytes:", "if read < 0:"),
    mistake(
        "a batch has no mask", BATCH, "for t in (self.y, self.aux, self.mask)", "for t in (self.y, self.aux, None)"
    ),
    mistake(
        "the mask stays on another device",
        BATCH,
        "moved = (None if t is None else t.to(device) for t in (self.x, self.index, self.y, self.aux, self.mask))",
        "moved = (*(None if t is None else t.to(device) for t in (self.x, self.index, self.y, self.aux)), self.mask)",
    ),
    mistake("plain facts lose the target", FACTS, 'Target(**values["target"])', "Target()"),
    mistake("names of columns become a list", FACTS, 'for name in ("shape", "aux")', 'for name in ("shape",)'),
    mistake(
        "all processes train on the same batches",
        SAMPLING,
        "self.steps()[self.rank :: self.processes]",
        "self.steps()[:: self.processes]",
    ),
    mistake("each epoch has the same order", SAMPLING, "stream(self.seed, self.epoch)", "stream(self.seed)"),
    mistake("the position counts one step too few", SAMPLING, "self.step = step + 1", "self.step = step"),
    mistake(
        "each later epoch starts where the first was resumed",
        SAMPLING,
        "start, self.start = self.start % self.num_steps, 0",
        "start = self.start % self.num_steps",
    ),
    mistake("some processes have one step more", SAMPLING, "num_steps // processes", "-(-num_steps // processes)"),
    mistake(
        "a subset is the first points",
        MODULE,
        "torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:size]",
        "torch.arange(size)",
    ),
    mistake("max_train cuts the test split", MODULE, "subset(test, self.max_test", "subset(test, self.max_train"),
    mistake("classes of the test split do not count", MODULE, "for y in (train, *others)", "for y in (train,)"),
    mistake(
        "a test split with missing values counts as complete",
        MODULE,
        "self.train.mask is None and self.test.mask is None",
        "self.train.mask is None",
    ),
    mistake(
        "a batch may be larger than the data", MODULE, "if not 1 <= self.batch_size <= len(self.train)", "if False"
    ),
    mistake("a mask shows what is missing", ARRAYS, "= ~chunk.x.isnan()", "= chunk.x.isnan()"),
    mistake(
        "the row of an infinite value is that of its chunk",
        ARRAYS,
        "chunk.index[infinite][0]",
        "infinite.nonzero()[0].item()",
    ),
    mistake(
        "classes are numbered by the training split",
        ARRAYS,
        "np.unique(np.concatenate(present))",
        "np.unique(present[0])",
    ),
    mistake(
        "numbers and strings are classes alike",
        ARRAYS,
        '"strings" if targets.dtype.kind in "US" else "integers"',
        '"classes"',
    ),
    mistake(
        "the whole array is copied to hold out a tenth", ARRAYS, "data.part(train), ", "data.part(train).in_memory(), "
    ),
    mistake("frames are grouped by time", BALL, "groups=aux[:, 0]", "groups=aux[:, 1]"),
    mistake(
        "all steps of an epoch have the same videos",
        BALL,
        "stream(self.seed, FRESH, *position)",
        "stream(self.seed, FRESH, position[0])",
    ),
    mistake(
        "the first points of a batch are its first videos",
        BALL,
        "frames[torch.from_numpy(rng.permutation(len(frames)))]",
        "frames.all()",
    ),
    mistake("the test angle is trained on", ROTATED, "angles[angles != test_angle]", "angles[:-1]"),
    mistake("digits have the labels of others", ROTATED, "[objects // OBJECTS]", "[objects % len(self.digits)]"),
]
