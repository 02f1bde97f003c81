"""Everything that reads bytes from outside or from disk, for a moment: the readers of tests/fuzz on damaged inputs.

``make fuzz`` does the same for as long as one likes, and faster. What it found stays here as a file of its own.
"""

import logging
import tracemalloc
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import archive
from tests.fuzz.fixups import Fixup
from tests.fuzz.reader import Reader
from tests.fuzz.readers import READERS

FINDINGS = sorted((Path(__file__).parents[1] / "fuzz/findings").glob("*.bin"))
short = settings(
    max_examples=60, deadline=1000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@cache
def prepared(name: str) -> tuple[Any, list[bytes]]:
    """The function under test, and its corpus."""
    reader = READERS[name]
    return reader.make(), reader.inputs()


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels are compiled when they are first called, which no single input has the time for."""
    run, corpus = prepared("kernels")
    for item in corpus:
        with suppress(*READERS["kernels"].refusals):
            run(item)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """What readers log of each damaged file is not for a person here, and readers turn it off for good."""
    names = ("holdfast.storage", "holdfast.coordination", "holdfast.broker.connection")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_what_fuzzing_found_is_read_or_refused_within_its_memory(path: Path) -> None:
    """A finding is named by its reader, two dashes, and what it once did."""
    reader = READERS[path.stem.split("--")[0]]
    run, data = prepared(reader.name)[0], path.read_bytes()
    tracemalloc.start()
    try:
        with suppress(*reader.refusals):
            run(data)
        assert tracemalloc.get_traced_memory()[1] <= reader.memory_base + reader.memory_factor * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", READERS)
def test_the_corpus_is_mostly_good(name: str) -> None:
    """Mutants of what is refused anyway would find nothing."""
    reader = READERS[name]
    run, corpus = prepared(name)
    refused = 0
    for item in corpus:
        try:
            run(item)
        except reader.refusals:
            refused += 1
    assert refused < 2 * len(corpus) / 3


@st.composite
def damaged(draw: st.DrawFn, reader: Reader, corpus: list[bytes]) -> bytes:
    """One input of the corpus with some bytes changed, left out or put in."""
    data = bytearray(draw(st.sampled_from(corpus)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(min(reader.prefix, len(data)), len(data)))
        match draw(st.integers(0, 4)):
            case 0 if at < len(data):
                data[at] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
            case 1:
                number = draw(st.sampled_from((-1, 0, 2**31 - 1, -(2**31), len(data) - at, len(data) + 1)))
                data[at : at + 4] = number.to_bytes(4, "big", signed=True)
            case 2:
                del data[at : at + draw(st.integers(1, 16))]
            case 3 if reader.tokens:
                data[at:at] = draw(st.sampled_from(reader.tokens))
            case _:
                data[at:at] = draw(st.binary(max_size=8))
    if draw(st.integers(0, 7)):
        _put_right(data, reader)
    return bytes(data[: reader.max_size])


def _put_right(data: bytearray, reader: Reader) -> None:
    """CRCs, so that the inside is reached."""
    from crc32c import crc32c

    from holdfast.records.batch import HEADER_SIZE, stamp_crc

    if reader.fixup is Fixup.BATCHES and len(data) >= reader.prefix + HEADER_SIZE:
        batch = memoryview(data)[reader.prefix :]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        stamp_crc(batch, 0)
    elif reader.fixup is Fixup.SNAPSHOT and len(data) > 6:
        data[2:6] = crc32c(bytes(data[6:])).to_bytes(4, "big")
    elif reader.fixup is Fixup.ARCHIVE:
        files = []
        for kind, content in archive.unpack(bytes(data)):
            batch = memoryview(bytearray(content))
            if kind == archive.BATCHES and len(batch) >= HEADER_SIZE:
                size = int.from_bytes(batch[8:12], "big") + 12
                if HEADER_SIZE <= size <= len(batch):
                    stamp_crc(batch, 0)
            files.append((kind, bytes(batch)))
        data[:] = archive.pack(files)


@pytest.mark.parametrize("name", READERS)
@short
@given(choice=st.data())
def test_damaged_inputs_are_read_or_refused(name: str, choice: st.DataObject) -> None:
    reader = READERS[name]
    run, corpus = prepared(name)
    with suppress(*reader.refusals):
        run(choice.draw(damaged(reader, corpus)))
