"""Every process that starts with this folder on its path notes how much CPU of its own thread each turn of its asyncio
loop takes: a file of its own in the folder that HOLDFAST_BENCH_TURNS names, a line (seconds since boot, CPU in ms) for
each turn above a millisecond, or above what HOLDFAST_BENCH_TURNS_MS says. Nothing without the first variable."""

import os

if _FOLDER := os.environ.get("HOLDFAST_BENCH_TURNS"):
    import asyncio.base_events
    import time
    from typing import Any

    _NOTED_S = float(os.environ.get("HOLDFAST_BENCH_TURNS_MS", "1")) / 1000
    _Loop: Any = asyncio.base_events.BaseEventLoop
    _turn = _Loop._run_once
    _file = None

    def _measured(self: Any) -> None:
        global _file
        began_s = time.thread_time()
        _turn(self)
        took_s = time.thread_time() - began_s
        if took_s > _NOTED_S:
            if _file is None:
                _file = open(f"{_FOLDER}/{os.getpid()}", "a", buffering=1)  # noqa: SIM115
            _file.write(f"{time.monotonic():.4f} {took_s * 1000:.3f}\n")

    _Loop._run_once = _measured
