"""What wandb wrote offline: its file is a LevelDB log of protobuf records, for which it has no public reader."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 32 * 1024
FIRST, MIDDLE = 2, 3  # parts of a record that is larger than what is left of a block


class OfflineRun:
    """One offline run: its settings, its curves, its final values and how it ended."""

    def __init__(self, folder: Path) -> None:
        [path] = folder.glob("*.wandb")
        self.folder = folder
        self.records = list(records(path.read_bytes()))
        [self.run] = [record.run for record in self.records if record.HasField("run")][:1]
        self.exit_codes = [record.exit.exit_code for record in self.records if record.HasField("exit")]

    @property
    def config(self) -> dict[str, Any]:
        return {item.key: json.loads(item.value_json) for item in self.run.config.update if item.key != "_wandb"}

    @property
    def history(self) -> list[dict[str, Any]]:
        rows = [record.history for record in self.records if record.HasField("history")]
        return [
            {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row.item} for row in rows
        ]

    @property
    def summary(self) -> dict[str, Any]:
        updates = [item for record in self.records if record.HasField("summary") for item in record.summary.update]
        return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in updates}


def records(content: bytes) -> Iterator[Any]:
    """The records of a file, also of one whose writer was killed."""
    from wandb.proto import wandb_internal_pb2

    protocol: Any = wandb_internal_pb2
    position, parts = 7, b""
    while position + 7 <= len(content):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind not in (FIRST, MIDDLE):
            if position <= len(content):
                yield protocol.Record.FromString(parts)
            parts = b""


def offline_runs(outputs: Path) -> list[OfflineRun]:
    """All offline runs below a folder, the oldest first."""
    return [OfflineRun(path) for path in sorted(outputs.glob("*/wandb/offline-run-*"))]
