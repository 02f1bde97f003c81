"""kill -9 of a process that appends: every append that returned is there after the next start."""

import subprocess
import sys
from pathlib import Path
from uuid import UUID

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.record import decode_batches
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)

WRITER = """
import os, sys
from holdfast.records.record import Record, encode_batch
from tests_kill import NOW_MS, open_log

directory, log = open_log(sys.argv[1])
number = log.view.end_offset
while True:
    if number % 997 == 0:
        log.flush_rolled()
    value = b"%d" % number
    log.append_as_leader(encode_batch([Record(0, NOW_MS + number, None, value * 20)]), number // 500, NOW_MS)
    os.write(1, value + b"\\n")
    number += 1
"""


def open_log(path: str) -> tuple[LogDir, Log]:
    directory = LogDir(path, OsFiles(), InlineQueue())
    directory.open(node_id=1, cluster_id="c", new_id=lambda: UUID(int=1), now_ms=NOW_MS)
    tp = TopicPartition("t", 0)
    return directory, Log.open(directory, tp, UUID(int=2), CONFIG, clean_shutdown=False, now_ms=NOW_MS)


def test_kill_9_loses_no_append_that_returned(tmp_path: Path) -> None:
    (tmp_path / "tests_kill.py").write_text(Path(__file__).read_text())
    log_path = str(tmp_path / "d")
    for round_number in range(3):
        command = [sys.executable, "-c", WRITER, log_path]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(700 + 211 * round_number)]
            writer.kill()
            lines += writer.stdout.readlines()
        acked = int([line for line in lines if line.endswith(b"\n")][-1])
        directory, log = open_log(log_path)
        assert acked < log.view.end_offset <= acked + 2
        data = b"".join(Path(s.path(".log")).read_bytes() for s in log.view.segments)
        assert [r.value for r in decode_batches(data)] == [b"%d" % i * 20 for i in range(log.view.end_offset)]
        assert log.epochs.entries() == [(e, e * 500) for e in range((log.view.end_offset - 1) // 500 + 1)]
        directory.close()
