"""One reader, one process: make inputs, read them, keep what leads somewhere new, note what must not happen.

The tight loop gets two kinds of feedback. Of every input, where it was refused (the innermost error's place in the
code) or what kind of success it was: costs less than a microsecond. Of a sample, and of all that is new by the first
kind, every step from line to line (coverage.py) and the peak of allocated memory. Inputs that are new by either become
parents. Some inputs are stretched to hundreds of kilobytes, to find what takes more than its share of time there.
"""

import gc
import json
import os
import random
import resource
import time
import tracemalloc
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from tests.fuzz import channel as ch
from tests.fuzz.coverage import Coverage
from tests.fuzz.mutate import mutants
from tests.fuzz.reader import Reader
from tests.fuzz.shrink import shrunk

MAX_PARENTS: Final = 4096
SAMPLE_SHARE: Final = 0.04
"""Part of the time that goes into the slow feedback."""
STRETCHED: Final = 256 << 10
SLOW_S: Final = 1.0
_REPORT_EVERY_S: Final = 5.0
_STRETCH_EVERY: Final = 16
_OWN: Final = ("fuzz/hunt.py", "fuzz/coverage.py")


@dataclass(slots=True, kw_only=True)
class Finding:
    """Something that must not happen. ``kind``: error, memory, slow, hang, crash."""

    reader: str
    kind: str
    what: str
    where: str
    data: bytes
    seen: int = 1

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "data": self.data.hex()}


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was done so far."""

    reader: str
    seed: int
    inputs: int = 0
    sampled: int = 0
    stretched: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    parents: int = 0
    outcomes: int = 0
    steps: int = 0
    lines: int = 0
    refused: int = 0
    max_rss_mib: int = 0
    findings: list[Finding] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        rest = {name: getattr(self, name) for name in self.__slots__ if name != "findings"}
        return {**rest, "findings": [finding.row() for finding in self.findings]}


class Hunt:
    """See the module's docstring."""

    def __init__(self, reader: Reader, shared: ch.Channel, *, seed: int, report: str) -> None:
        self._reader = reader
        self._shared = shared
        self._report = report
        self._rng = random.Random(seed)
        self._state = np.array([seed * 0x9E3779B97F4A7C15 + 0x1234567 & 0xFFFFFFFFFFFFFFFF | 1], np.uint64)
        self._run = reader.make()
        self._coverage = Coverage()
        self._seen: set[Any] = set()
        self._codes: dict[int, Any] = {}
        self._found: dict[tuple[str, str], Finding] = {}
        self._places: Counter[str] = Counter()
        self._fresh: list[bytes] = []
        self.tally = Tally(reader=reader.name, seed=seed)
        self._parents = reader.inputs()
        self._seeds = len(self._parents)
        self._tokens, self._token_ends = joined(list(reader.tokens))
        self._began = time.monotonic()
        self._cpu_began = time.process_time()
        self._sample_s = 0.0

    def go(self, *, inputs: int, seconds: float | None) -> None:
        """Until so many inputs were read, or the time is over."""
        shared, reader = self._shared, self._reader
        self._warm_up()
        self._began, self._cpu_began = time.monotonic(), time.process_time()
        reported = self._began
        out = np.frombuffer(shared.data, np.uint8)
        offsets = np.frombuffer(shared.offsets, np.int64)
        source, ends = joined(self._parents)
        chunk = 0
        while self.tally.inputs < inputs:
            if self._fresh:
                self._adopt()
                source, ends = joined(self._parents)
            shared.words[ch.PHASE] = ch.BETWEEN
            # What the hunt itself needs is not the reader's: over millions of inputs its own tables grow.
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            mutants(
                self._state, source, ends, self._tokens, self._token_ends, out, offsets,
                reader.max_size, reader.prefix, int(reader.fixup),
            )  # fmt: skip
            count = min(ch.CHUNK, inputs - self.tally.inputs)
            blob, places = bytes(shared.data[: offsets[-1]]), offsets.tolist()
            self._close_memory()
            self._read_chunk(blob, places, count)
            self.tally.inputs += count
            shared.words[ch.DONE] = self.tally.inputs
            self._sample(blob, places, count)
            chunk += 1
            if chunk % _STRETCH_EVERY == 0:
                self._stretch(blob, places)
            now = time.monotonic()
            if now - reported > _REPORT_EVERY_S:
                reported = now
                self._tell()
            if seconds is not None and now - self._began > seconds:
                break
        self._shrink()
        self._tell()

    # -- the tight loop ----------------------------------------------------------------------------------------

    def _read_chunk(self, blob: bytes, places: list[int], count: int) -> None:
        run, refusals, kinds = self._run, self._reader.refusals, self._reader.kinds
        seen, words = self._seen, self._shared.words
        words[ch.INDEX] = 0
        words[ch.PHASE] = ch.RUNNING
        refused = 0
        inner: Any = None
        trace: Any = None
        begin = 0
        for i in range(count):
            words[0] = i  # ch.INDEX
            end = places[i + 1]
            data = blob[begin:end]
            begin = end
            try:
                key = run(data)
            except refusals as e:
                refused += 1
                inner = e
                while (trace := inner.__context__) is not None:
                    inner = trace
                trace = inner.__traceback__
                while (following := trace.tb_next) is not None:
                    trace = following
                key = (id(trace.tb_frame.f_code), trace.tb_lasti)
            except Exception as e:
                self._note(e, data)
                continue
            if kinds and data:
                key = (key, data[0] % kinds)
            if key not in seen:
                seen.add(key)
                self._fresh.append(data)
        inner = trace = None
        self.tally.refused += refused

    def _note(self, error: Exception, data: bytes) -> None:
        where = _place(error)
        what = type(error).__name__
        known = self._found.get((what, where))
        if known is not None:
            known.seen += 1
            if len(data) < len(known.data):
                known.data = data
            return
        kind = "memory" if isinstance(error, MemoryError) else "error"
        self._add(Finding(reader=self._reader.name, kind=kind, what=f"{what}: {error}"[:300], where=where, data=data))
        self._found[what, where] = self.tally.findings[-1]

    def _add(self, finding: Finding) -> None:
        self.tally.findings.append(finding)
        self._shared.words[ch.FINDINGS] = len(self.tally.findings)
        self._tell()

    # -- feedback ----------------------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Read the corpus as it is, then close the memory."""
        for item in self._parents:
            self._watch(item)
            self._weigh(item)
        self._fresh.clear()
        source, ends = joined(self._parents)
        out, offsets = np.frombuffer(self._shared.data, np.uint8), np.frombuffer(self._shared.offsets, np.int64)
        mutants(
            self._state, source, ends, self._tokens, self._token_ends, out, offsets[:65],
            self._reader.max_size, self._reader.prefix, int(self._reader.fixup),
        )  # fmt: skip
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        self._close_memory()

    def _close_memory(self) -> None:
        """From here on the process gets no more than the reader may ever need."""
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + self._reader.headroom, resource.RLIM_INFINITY))

    def _sample(self, blob: bytes, places: list[int], count: int) -> None:
        """Look closely at what is new and at some more, as long as its share of the time lasts."""
        started = time.monotonic()
        self._sample_s += 0.0
        for data in self._fresh[-64:]:
            self._watch(data)
            self._weigh(data)
        while True:
            now = time.monotonic()
            spent = self._sample_s + now - started
            if spent > SAMPLE_SHARE * (now - self._began):
                break
            for _ in range(4):
                i = self._rng.randrange(count)
                data = blob[places[i] : places[i + 1]]
                if self._watch(data):
                    self._fresh.append(data)
                self._weigh(data)
        self._sample_s += time.monotonic() - started

    def _watch(self, data: bytes) -> bool:
        self._shared.put_one(data)
        self.tally.sampled += 1
        try:
            self._coverage.trace(self._run, data)
        except self._reader.refusals:
            pass
        except Exception as e:
            self._note(e, data)
        return self._coverage.found

    def _weigh(self, data: bytes) -> None:
        """The peak of what Python allocates for one input."""
        self._shared.put_one(data)
        tracemalloc.start()
        try:
            self._run(data)
        except self._reader.refusals:
            pass
        except Exception as e:
            self._note(e, data)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        limit = self._reader.memory_base + self._reader.memory_factor * len(data)
        if peak > limit:
            self._cost("memory", f"{peak} bytes allocated for {len(data)}, limit {limit}", data)

    def _stretch(self, blob: bytes, places: list[int]) -> None:
        """One input of this chunk with a piece of it repeated until it is large."""
        i = self._rng.randrange(ch.CHUNK)
        data = blob[places[i] : places[i + 1]]
        if len(data) < 8:
            return
        at = self._rng.randrange(len(data))
        piece = data[at : at + self._rng.randint(1, 64)]
        large = data[:at] + piece * (STRETCHED // len(piece)) + data[at:]
        self._shared.put_one(large[: len(self._shared.data)])
        self.tally.stretched += 1
        began = time.process_time()
        try:
            self._run(large)
        except self._reader.refusals:
            pass
        except Exception as e:
            self._note(e, large)
        took = time.process_time() - began
        if took > SLOW_S:
            self._cost("slow", f"{took:.1f} s for {len(large)} bytes", large)

    def _cost(self, kind: str, what: str, data: bytes) -> None:
        known = self._found.get((kind, ""))
        if known is not None:
            known.seen += 1
            return
        self._add(Finding(reader=self._reader.name, kind=kind, what=what, where="", data=data))
        self._found[kind, ""] = self.tally.findings[-1]

    def _adopt(self) -> None:
        """The new inputs become parents; when there are too many, others that were not there from the start go."""
        for data in self._fresh:
            if len(data) > self._reader.max_size:
                continue
            if len(self._parents) < MAX_PARENTS:
                self._parents.append(data)
            else:
                self._parents[self._rng.randrange(min(self._seeds, MAX_PARENTS // 2), MAX_PARENTS)] = data
        self._fresh.clear()

    def _shrink(self) -> None:
        """Smaller inputs for the errors that were found."""
        self._shared.words[ch.PHASE] = ch.BETWEEN
        for (what, where), finding in self._found.items():
            if finding.kind != "error":
                continue

            def same(data: bytes, what: str = what, where: str = where) -> bool:
                try:
                    self._run(data)
                except Exception as e:
                    return type(e).__name__ == what and _place(e) == where
                return False

            if same(finding.data):
                finding.data = shrunk(finding.data, same, self._reader.prefix)

    def _tell(self) -> None:
        t = self.tally
        t.seconds = time.monotonic() - self._began
        t.cpu_s = time.process_time() - self._cpu_began
        t.parents, t.outcomes = len(self._parents), len(self._seen)
        t.steps, t.lines = len(self._coverage.steps), len(self._coverage.lines)
        t.max_rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        with open(self._report + ".tmp", "w") as f:
            json.dump(t.row(), f)
        os.replace(self._report + ".tmp", self._report)


def joined(items: list[bytes]) -> tuple[Any, Any]:
    """The items in one array, and where each begins, with the end of the last."""
    ends = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=ends[1:])
    return np.frombuffer(b"".join(items) or b"\0", np.uint8), ends


def _place(error: BaseException) -> str:
    """Where an error was raised: file, line and function, innermost of ours first."""
    inner: BaseException = error
    places = []
    trace = inner.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.endswith(_OWN):
            trace = trace.tb_next
            continue
        places.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " < ".join(reversed(places[-3:]))
