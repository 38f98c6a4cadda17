"""The command `gp-decoders`: `gp-decoders train model=sas` is `python -m src.train model=sas`.

It works in any folder, also in one with a package `src` of its own.
"""

import sys
from difflib import get_close_matches
from importlib import import_module

COMMANDS = {
    "train": ("src.train", "train and evaluate one model on one dataset, or sweep over many (-m)"),
    "plan": ("src.plan", "show a sweep before it starts or while it runs"),
    "report": ("src.report.__main__", "tables, figures and one page from finished runs"),
    "evaluate": ("src.evaluate", "evaluate a finished run again, or encode new data with it"),
    "prepare": ("src.prepare", "fetch, verify or generate datasets ahead of time"),
}


def main() -> int | None:
    """Run the command that the first argument names, with the others."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(help_text())
        return 0
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        question = f" Did you mean {near[0]}?" if near else f" Choose from {', '.join(COMMANDS)}."
        sys.exit(f"There is no command {name}.{question}")
    del sys.argv[1]
    code: int | None = import_module(COMMANDS[name][0]).main()
    return code


def help_text() -> str:
    """One line per command."""
    lines = [f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: gp-decoders COMMAND ... (gp-decoders COMMAND --help says more)", "", *lines])
