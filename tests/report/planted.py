"""Mistakes to plant in src/report, each of which the test file of its room must find."""

from tests.planting import mistake

CELLS = ("src/report/cells.py", "tests/report/test_tables.py")
FORMATS = ("src/report/formats.py", "tests/report/test_formats.py")
RECORDS = ("src/report/records.py", "tests/report/test_records.py")
IMPUTATION = ("src/report/imputation.py", "tests/report/test_imputation.py")
CURVES = ("src/report/curves.py", "tests/report/test_curves.py")
PAGE = ("src/report/page.py", "tests/report/test_page.py")
VERIFY = ("src/report/verify.py", "tests/report/test_verify.py")
LEARNING = ("src/report/learning.py", "tests/report/test_learning.py")
MAIN = ("src/report/records.py", "tests/report/test_main.py")
COMMANDS = ("src/report/commands.py", "tests/report/test_commands.py")

PLANTED = [
    mistake("failed runs displace finished ones", CELLS, 'sum(run.status == "done" for run in group)', "len(group)"),
    mistake("higher is always better", CELLS, '== (better == "lower")', "== False"),
    mistake("the sd of a population", CELLS, "return stdev(self.values)", "return stdev(self.values) * 0.8"),
    mistake(
        "10.25 is printed as 1.25", FORMATS, r're.sub(r"(?<![\d.])0\.(?=\d)", ".", text)', 'text.replace("0.", ".")'
    ),
    mistake("a baseline counts once per model", IMPUTATION, "{run.seed: run for", "{run.name: run for"),
    mistake("random and block share a column", IMPUTATION, '("dataset", *HIDDEN)', '("dataset",)'),
    mistake("what was seen is filled in", PAGE, "np.where(seen, images, reconstructions)", "reconstructions"),
    mistake("metrics of other settings are the run's own", RECORDS, " if name.startswith(own) for key", " for key"),
    mistake("other configurations join a line", CURVES, "str((run.model, rest_of(run, curve.setting)))", "run.model"),
    mistake("any exact model is a line across", CURVES, "for key in trained)", "for key in [])"),
    mistake("epochs count from 0", CURVES, "enumerate(run.history, 1)", "enumerate(run.history)"),
    mistake("seconds of watched epochs alone", LEARNING, "[epochs - 1]", "[: len(epochs)]"),
    mistake("one seed stands for all", LEARNING, "for trace in traces], 0)", "for trace in traces[:1]], 0)"),
    mistake("the last place counts", MAIN, 'if known.status != "done" and', "if"),
    mistake("a difference downwards is close", VERIFY, "abs(now - stored)", "now - stored"),
    mistake("a lost score is passed over", VERIFY, 'self.verdict in ("equal", "close")', 'self.verdict != "DIFFERS"'),
    mistake("the same machine may round", VERIFY, "not exact and ", ""),
    mistake(
        "other runs of a metric are not listed", COMMANDS, "tuple(run.name for run in cell.runs)", "cell.runs[0].name"
    ),
]
