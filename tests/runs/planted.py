"""Mistakes to plant in src/runs, each of which the mirrored test file must find."""

from tests.planting import mistake

IDENTITY = ("src/runs/identity.py", "tests/runs/test_identity.py")
RECORD = ("src/runs/record.py", "tests/runs/test_record.py")
FILES = ("src/runs/files.py", "tests/runs/test_files.py")
ALIASES = ("src/runs/aliases.py", "tests/runs/test_aliases.py")
PUBLISHED = ("src/runs/published.py", "tests/runs/test_published.py")
CODE = ("src/runs/code.py", "tests/runs/test_code.py")
CONTENTS = ("src/runs/contents.py", "tests/runs/test_contents.py")

PLANTED = [
    mistake("another path is another dataset", IDENTITY, "**config[CONTENT]}}", "}}"),
    mistake("the cache does not ask for the time", CONTENTS, "known[:2] == [size, mtime]", "known[0] == size"),
    mistake(
        "a file that was just written is cached", CONTENTS, "if time.time_ns() - mtime > FRESH * 10**9:", "if True:"
    ),
    mistake("the last block does not count", CONTENTS, "// (BLOCKS - 1)", "// BLOCKS"),
    mistake("only the beginning of a file counts", CONTENTS, "while piece := file", "if piece := file"),
    mistake("a damaged cache is an error", CONTENTS, "with suppress(OSError, ValueError):", "with suppress(OSError):"),
    mistake("code is known without its content", CODE, ".encode() + path.read_bytes()", ".encode()"),
    mistake("code is known without its names", CODE, "str(path.relative_to(root)).encode() + ", ""),
    mistake("the batch size does not count", IDENTITY, '"dataset.root",', '"dataset.root", "dataset.batch_size",'),
    mistake("null options count", IDENTITY, "if item is not None and item != {}", "if item != {}"),
    mistake(
        "our classes count by their module",
        IDENTITY,
        'return path.rpartition(".")[2] if path.startswith(aliases.OWN) else path',
        "return path",
    ),
    mistake(
        "classes of other packages count by their last name",
        IDENTITY,
        'return path.rpartition(".")[2] if path.startswith(aliases.OWN) else path',
        'return path.rpartition(".")[2]',
    ),
    mistake("a failed run keeps its checkpoint", RECORD, 'elif status(folder) == "failed":', "elif False:"),
    mistake(
        "a full disk makes a run fail for good",
        RECORD,
        "isinstance(error, Interrupted | OSError)",
        "isinstance(error, Interrupted)",
    ),
    mistake("the seconds before a resume are lost", RECORD, 'round(before.get("seconds", 0) + time', "round(time"),
    mistake("half-written files take their place", FILES, "    finally:", "    except ValueError:"),
    mistake("old names are not looked up first", ALIASES, "if path in NAMES:", "if path in ():"),
]
