"""Mistakes to plant in src/data, each of which the mirrored test file must find."""

from tests.planting import mistake

BATCH = ("src/data/batch.py", "tests/data/test_batch.py")
FACTS = ("src/data/facts.py", "tests/data/test_facts.py")
SAMPLING = ("src/data/sampling.py", "tests/data/test_sampling.py")
KNOWN = ("src/data/known.py", "tests/data/test_known.py")
MODULE = ("src/data/module.py", "tests/data/test_module.py")
STANDARDISATION = ("src/data/standardisation.py", "tests/data/test_standardisation.py")
TABLE = ("src/data/table.py", "tests/data/test_table.py")
SHEETS = ("src/data/sheets.py", "tests/data/test_table.py")
ARRAYS = ("src/data/arrays.py", "tests/data/test_arrays.py")
BALL = ("src/data/moving_ball.py", "tests/data/test_moving_ball.py")
ROTATED = ("src/data/rotated_mnist.py", "tests/data/test_rotated_mnist.py")
SOURCES = ("src/data/sources.py", "tests/data/test_sources.py")
FILES = ("src/data/files.py", "tests/data/test_files.py")
ANURAN = ("src/data/anuran.py", "tests/data/test_anuran.py")
OIL = ("src/data/oil_flow.py", "tests/data/test_oil_flow.py")
CELLS = ("src/data/cells.py", "tests/data/test_cells.py")
FLIGHTS = ("src/data/flights.py", "tests/data/test_flights.py")
SARCOS = ("src/data/sarcos.py", "tests/data/test_sarcos.py")
MOTION = ("src/data/motion.py", "tests/data/test_motion.py")
FACES = ("src/data/faces.py", "tests/data/test_faces.py")
TEXTURES = ("src/data/textures.py", "tests/data/test_textures.py")
RECTANGLES = ("src/data/rectangles.py", "tests/data/test_rectangles.py")
TOY_CURVE = ("src/data/toy_curve.py", "tests/data/test_toy_curve.py")

DATA_BITS = ("src/data/bits.py", "tests/data/test_bits.py")
ONE_HOT = ("src/data/one_hot.py", "tests/data/test_table.py")


PLANTED = [
    mistake("images with channels first are taken for channels last", ARRAYS, "shape[2] in CHANNELS", "True"),
    mistake("floats below 0 may be intensities", ARRAYS, "bool(seen.min() >= 0) and ", ""),
    mistake("the same bits in every epoch", DATA_BITS, "self.sampler.epoch, self.sampler.step", "0, self.sampler.step"),
    mistake("the same draws for every seed", DATA_BITS, 'seed if part == "train" else 0', "0"),
    mistake("a test draw for each seed", DATA_BITS, 'seed if part == "train" else 0', "seed"),
    mistake("hidden bits are shown", DATA_BITS, "x if split.hidden is None else blanked(x, split.hidden[index])", "x"),
    mistake("missing values become bits", DATA_BITS, "torch.where(x.isnan(), x, bits)", "bits"),
    mistake("bytes that are 1", DATA_BITS, ".to(x.dtype) * one", ".to(x.dtype)"),
    mistake("categories are partly missing", ONE_HOT, "seen[:, part] = known.unsqueeze(1)", "pass"),
    mistake("two ones are a category", ONE_HOT, "cells.sum(1) == 1", "cells.sum(1) >= 1"),
    mistake(
        "columns are hidden one by one",
        ("src/data/missing.py", "tests/data/test_table.py"),
        "(len(one_hot),) if one_hot else",
        "(sum(one_hot),) if False else",
    ),
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
        "twin.test, twin.validation, twin.test_is_train = self.validation, None, False",
        "twin.validation, twin.test_is_train = None, False",
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
    mistake(
        "names of columns become a list",
        FACTS,
        "tuple(values[name]) for name in SEQUENCES",
        "list(values[name]) for name in SEQUENCES",
    ),
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
        "complete_test=self.test.mask is None",
        "complete_test=self.train.mask is None",
    ),
    mistake(
        "a batch may be larger than the data",
        MODULE,
        "if problem := batch_problem(self.batch_size",
        "if False and (self",
    ),
    mistake("bits of images are grey values", KNOWN, 'bool(settings.get("binary")) or used.binary', "used.binary"),
    mistake("there are fewer images of digits", KNOWN, '"Digits": images(1437)', '"Digits": images(1400)'),
    mistake(
        "a table's target is a class", KNOWN, '"real" if settings.get("target")', '"class" if settings.get("target")'
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
        "np.unique(np.concatenate(labels))",
        "np.unique(labels[0])",
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
        "torch.from_numpy(rng.permutation(len(paths)))",
        "torch.arange(len(paths))",
    ),
    mistake("the test angle is trained on", ROTATED, "angles[angles != test_angle]", "angles[:-1]"),
    mistake("digits have the labels of others", ROTATED, "[objects // OBJECTS]", "[objects % len(self.digits)]"),
    mistake("files without a source are fetched from nowhere", SOURCES, "if not files.sources:", "if False:"),
    mistake("classes are not kept in proportion", FILES, "random_state=0, stratify=y", "random_state=0"),
    mistake("the label is the family", ANURAN, "FEATURES, GENUS = slice(22), 23", "FEATURES, GENUS = slice(22), 22"),
    mistake("oil flow is not standardised", OIL, "    standardise = True\n", ""),
    mistake("stages are those of the rows before", CELLS, "self.classes.index(row[0]) for row", "0 for row"),
    mistake("times are read as numbers", FLIGHTS, "60 * (clock // 100) + clock % 100", "clock"),
    mistake("flights with missing values are kept", FLIGHTS, "if MISSING in numbers or plane", "if plane"),
    mistake(
        "torques belong to other rows",
        SARCOS,
        "(t[order].tensor_split",
        "(t[order if t.shape[1] > 7 else order.flip(0)].tensor_split",
    ),
    mistake("torques are scaled by the test rows", SARCOS, "(torques - y.mean(0))", "(torques - y_test.mean(0))"),
    mistake("the left leg is hidden", MOTION, '"legs": slice(7, 14)', '"legs": slice(0, 7)'),
    mistake("angles are not wrapped", MOTION, "np.arcsin(np.sin(np.radians(joints)))", "np.radians(joints)"),
    mistake(
        "steps cross from one sequence to the next",
        MOTION,
        "for number in numbers]\n    y",
        "for number in numbers]\n    features = [motion(raw)]\n    y",
    ),
    mistake("hidden columns are visible", MOTION, "mask=mask, hidden=~mask", "mask=mask"),
    mistake("faces lie on their side", FACES, ".transpose(0, 1, 3, 2)", ""),
    mistake(
        "boxes start at the corner",
        FACES,
        "box = (left, top, left + width, top + height)",
        "box = (0, 0, width, height)",
    ),
    mistake("faces are pooled by their means", FACES, ".max(axis=(1, 3))", ".mean(axis=(1, 3)).astype(np.uint8)"),
    mistake("test patches are training patches", TEXTURES, "[: 2 * EACH]]", "[:EACH].repeat(2)]"),
    mistake("patches are cut across", TEXTURES, "tiles.swapaxes(1, 2)", "tiles.swapaxes(0, 2)"),
    mistake("the label is a pixel", RECTANGLES, "bits[:, -1].long()", "bits[:, -2].long()"),
    mistake("squares are allowed", RECTANGLES, "(abs(height - width) >= DIFFERENCE) & ", ""),
    mistake("flat patches are kept", RECTANGLES, "dtype=np.float32) >= FLAT", "dtype=np.float32) >= 0"),
    mistake(
        "hidden values decide the constants",
        STANDARDISATION,
        "x = train.all().x.double()",
        "x = train.truth(torch.arange(len(train))).double()",
    ),
    mistake("the sd of a sample", STANDARDISATION, ".square().nanmean(0)", ".square().nansum(0) / (len(x) - 1)"),
    mistake("variance for sd", STANDARDISATION, ".nanmean(0).sqrt()", ".nanmean(0)"),
    mistake("empty columns are not constant", STANDARDISATION, "~(spread > 1e-12", "(spread <= 1e-12"),
    mistake(
        "no digits are left of large values",
        STANDARDISATION,
        "((x - self.centre) / self.spread).float()",
        "((x.float() - self.centre.float()) / self.spread.float())",
    ),
    mistake(
        "test columns are taken by their place",
        TABLE,
        "sheet.take(list(names)), sheet.where",
        "sheet.take(sheet.names[: len(names)]), sheet.where",
    ),
    mistake(
        "the target is observed",
        TABLE,
        "for name in sheet.names if name not in roles.beside",
        "for name in sheet.names",
    ),
    mistake("text counts as missing", SHEETS, "if text.any():", "if False:"),
    mistake("a layer is ignored", SHEETS, ".to_df(layer)", ".to_df()"),
    mistake("16 comes before 2", TABLE, "int(part) if i % 2 else part", "part"),
    mistake("rows are counted from 0", SHEETS, "row {row + 1} (counted", "row {row} (counted"),
    mistake("names of rows are observed", SHEETS, "None if named else 0", "None"),
    mistake(
        "noise before inputs",
        TOY_CURVE,
        "x = random.rand(POINTS, 1)",
        "x = (random.randn(POINTS, 1), random.rand(POINTS, 1))[1]",
    ),
    mistake(
        "test targets have noise", TOY_CURVE, "of_arrays(grid, curve(grid))", "of_arrays(grid, curve(grid) + NOISE)"
    ),
]
