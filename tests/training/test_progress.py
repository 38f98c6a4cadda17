"""What a person sees while a run trains, in a terminal and in the log of a job."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path
from threading import Thread

import pytest

from tests.training.test_experiment import small_run

NUMBER = r"-?\d[\d.e+-]*"
PARTS = ("loss", "active", "rest", "kl")


class Terminal:
    """A real terminal of 80 columns, and all that was written to it."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.file = os.fdopen(theirs, "w")
        self.content = b""
        self.reader = Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        while True:
            try:
                self.content += os.read(self.ours, 4096)
            except OSError:  # the other end was closed
                return

    def lines(self) -> list[str]:
        self.file.close()
        self.reader.join()
        os.close(self.ours)
        return [line.strip() for line in re.split(r"[\r\n]+", self.content.decode()) if line.strip()]


def test_a_terminal_of_80_columns_shows_parts_throughput_and_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.file)
    small_run(tmp_path, model="bayesian_sas")
    bars = [line for line in terminal.lines() if "loss" in line]
    values = " ".join(f"{part} {NUMBER}" for part in PARTS)
    assert re.fullmatch(rf"100%\|.+\| \d\d:\d\d<\d\d:\d\d, \S+/s {values}", bars[-1])
    assert all(len(bar) <= 80 for bar in bars)


def test_a_log_has_one_line_per_epoch_with_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_run(tmp_path, model="bayesian_sas")
    values = "  ".join(f"{part} {NUMBER}" for part in PARTS)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    assert len(lines) == 3
    for epoch, line in enumerate(lines, 1):
        assert re.fullmatch(rf"epoch {epoch}/3  {values}  [\d,]+ samples/s  \d\d:\d\d left", line)
    assert lines[-1].endswith("00:00 left")
