"""Mistakes to plant in src/launch, each of which the mirrored test file must find."""

from tests.planting import mistake

FREEZE = ("src/launch/freeze.py", "tests/launch/test_freeze.py")
CHOICES = ("src/launch/choices.py", "tests/launch/test_choices.py")
CELLS = ("src/launch/cells.py", "tests/launch/test_cells.py")
SPACE = ("src/launch/search_space.py", "tests/launch/test_search_space.py")
PRIVATE = ("src/launch/hydra_private.py", "tests/launch/test_cells.py")
CLI = ("src/launch/cli.py", "tests/launch/test_cells.py")
PLAN = ("src/plan.py", "tests/launch/test_values.py")
VALUES = ("src/launch/values.py", "tests/launch/test_values.py")

PLANTED = [
    mistake(
        "true and false are whole numbers",
        VALUES,
        "isinstance(value, int) and not isinstance(value, bool)",
        "isinstance(value, int)",
    ),
    mistake("values of a sweep's options are looked up too early", PRIVATE, "not is_of_an_option(text)]", "True]"),
    mistake("Hydra's message is shown", CLI, 'UserError("\\n".join(hints(list(overrides))) or str(error))', "error"),
    mistake("pairs are looked at whose values are wrong", VALUES, " if request.folder not in wrong)", ")"),
    mistake("infinite numbers are numbers", VALUES, ' and abs(value) < float("inf")', ""),
    mistake("a file that is not there is no problem", VALUES, "if not path.is_file():", "if False:"),
    mistake("references are resolved too early", CELLS, "OmegaConf.to_container(node)", "list(node)"),
    mistake("facts rule nothing out", VALUES, "elif found is not None:", "elif found is None:"),
    mistake(
        "sizes that do not fit are let through", VALUES, "if problem := size_problem(data, found):", "if problem := 0:"
    ),
    mistake(
        "a name on the command line is looked up at once", CELLS, "if OmegaConf.is_config(node) else node", "and node"
    ),
    mistake("settings that nothing reads are added", VALUES, 'any("_target_" in node for node in nodes)', "True"),
    mistake("an edited copy is used again", FREEZE, "if not copy.exists():", "if not folder.exists():"),
    mistake(
        "every choice has an effect", CHOICES, "if any(other.folder != first.folder for other in others):", "if 1:"
    ),
    mistake("no pair applies", CHOICES, "return pair_file(request).exists()", "return False"),
    mistake(
        "the command line does not replace the sweep's values",
        CELLS,
        "[*in_file, *group, *given], given",
        "[*given, *in_file, *group], given",
    ),
    mistake("equal runs are several cells", CELLS, "if first[cell.folder] is cell", "if True"),
    mistake("the test data may choose", VALUES, "and part is None:", "and part is not None:"),
    mistake("one end of a space is not checked", SPACE, "span.high if isinstance", "span.low if isinstance"),
    mistake("the first override of a key counts", SPACE, "for text in overrides}", "for text in reversed(overrides)}"),
    mistake("another space is the same study", SPACE, "metric, sorted(self.varied.items())]", "metric]"),
    mistake("another score is the same study", SPACE, "identity.fingerprint(cell.config), metric, ", ""),
]
