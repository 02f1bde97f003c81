"""What is published of a log, read by path while the log goes on."""

import os

import pytest

from holdfast.model.errors import CorruptRecordError, LogReadError
from holdfast.records.batch import iter_headers
from holdfast.storage.files import OsFiles
from holdfast.storage.published import PublishedFile, PublishedReader, published_files
from tests.unit.storage.conftest import NOW_MS, make_batch


def read_all(reader, size):
    found = b""
    while data := reader.read(size):
        whole = sum(header.size for _, header in iter_headers(data))
        reader.took(whole, data)
        found += data[:whole]
    return [header.base_offset for _, header in iter_headers(found)]


def fill(log, count):
    for i in range(count):
        log.append_as_leader(make_batch(b"v" * (10 + 40 * (i % 5))), 0, NOW_MS)


@pytest.mark.parametrize("size", [61, 100, 1000, 1 << 20])
def test_D1_all_batches_of_all_segments_come_in_order(open_log, size):
    log = open_log(segment_bytes=1000)
    fill(log, 50)
    files = published_files(log)
    assert len(files) > 3
    fill(log, 5)  # not in the picture
    assert read_all(PublishedReader(OsFiles(), files, 0), size) == list(range(50))
    assert published_files(open_log(topic="empty")) == ()


@pytest.mark.parametrize("size", [61, 100, 1000, 1 << 20])
def test_what_ends_before_the_start_is_left_out(open_log, size):
    log = open_log(segment_bytes=1000)
    fill(log, 50)
    log.delete_records_before(33)
    reader = PublishedReader(OsFiles(), published_files(log), log.view.start_offset)
    assert read_all(reader, size) == list(range(33, 50))


def test_a_file_that_is_cut_or_gone_or_torn_is_an_error(open_log):
    log = open_log()
    fill(log, 5)
    (path, size), = published_files(log)  # fmt: skip
    with pytest.raises(LogReadError, match="was cut while it was read"):
        read_all(PublishedReader(OsFiles(), [PublishedFile(path, size + 1)], 0), 1 << 20)
    with pytest.raises(CorruptRecordError, match="is torn"):
        read_all(PublishedReader(OsFiles(), [PublishedFile(path, size - 1)], 0), 1 << 20)
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        read_all(PublishedReader(OsFiles(), [PublishedFile(path, size)], 0), 100)
