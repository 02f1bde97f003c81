"""Tables of the lake in S3, as moto's server serves it: conditional creation, and a store that has none."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from holdfast.lake.data_files import attempt_of
from holdfast.lake.errors import AlreadyThereError, FileMissingError, PositionMovedError, StoreError
from holdfast.lake.opening import make_table, open_table
from holdfast.lake.position import Position
from holdfast.lake.stores import store_of
from holdfast.lake.table import land, now_ms
from holdfast.lake.upkeep import compact, sweep
from tests.contracts.lake_tables import SCHEMA, batch_of, count_by_own_library
from tests.moto_server import moto_server, s3_settings


@contextmanager
def served(app: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


class Unconditional:
    """An S3 of the years before conditional writes: it does not know the header, and overwrites."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return self._app(environ, start_response)


def use(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in s3_settings(endpoint).items():
        monkeypatch.setenv(name, value)
    import s3fs

    files = s3fs.S3FileSystem(skip_instance_cache=True)
    if not files.exists("bucket"):
        files.mkdir("bucket")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, endpoint)


def test_a_name_is_made_once(s3: None) -> None:
    store = store_of("s3://bucket/once")
    store.create("a/b", b"first")
    with pytest.raises(AlreadyThereError, match="s3://bucket/once/a/b is there already"):
        store.create("a/b", b"second")
    assert store.read("a/b") == b"first" and store.size("a/b") == 5
    assert [(entry.path, entry.size) for entry in store.list("a")] == [("a/b", 5)]
    store.remove("a/b")
    store.remove("a/b")
    assert list(store.list("a")) == []
    for ask in (store.read, store.size):
        with pytest.raises(FileMissingError, match="s3://bucket/once/a/b is not there"):
            ask("a/b")


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_spark_D2_two_writers_on_s3_land_once(s3: None, format: str) -> None:
    location = f"s3://bucket/{format}/table"
    table, other = make_table(location, format, SCHEMA), open_table(location, format)
    assert other is not None
    start = land(table, batch_of(table, Position(), (0, 0, 10)))
    theirs = batch_of(other, start, (0, 10, 15))

    def overtaken(step: str) -> None:
        if step == "commit":
            land(other, theirs)

    with pytest.raises(PositionMovedError, match="the table ends at 15"):
        land(table, batch_of(table, start, (0, 10, 20)), on_step=overtaken)
    table.refresh()
    assert table.position() == theirs.after
    compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
    table.refresh()
    assert len(table.files()) == 1 and table.position() == theirs.after
    table.expire(older_than_ms=now_ms() + 1_000)
    assert len(sweep(table, clock=lambda: now_ms() + 1_000, most_age_ms=0)) >= 1  # the refused writer's file
    again = open_table(location, format)
    assert again is not None and again.position().topics == theirs.after.topics and again.position().rows == 15
    if format == "delta":
        assert count_by_own_library(again) == 15


def test_a_store_without_conditional_creation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Unconditional(DomainDispatcherApplication(create_backend_app))) as url:
        use(monkeypatch, url)
        with pytest.raises(StoreError, match=r"s3://bucket/t does not refuse to make a file that is there"):
            make_table("s3://bucket/t", "parquet", SCHEMA)
        assert list(store_of("s3://bucket/t").list("")) == []


def test_an_iceberg_table_in_s3_needs_a_catalog(s3: None) -> None:
    with pytest.raises(StoreError, match="needs a catalog of its own"):
        make_table("s3://bucket/iceberg", "iceberg", SCHEMA)
