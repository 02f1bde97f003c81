"""The cluster client for code without an event loop: Spark executors, command lines, tests.

Owns one event loop in one daemon thread, and nothing else: every call is the asyncio client's own, run there and
waited for. There is no second implementation to drift.

    with BlockingClient("127.0.0.1:9092") as client:
        client.run(client.aio.metadata())
        client.list_offsets({tp: OffsetSpec.LATEST})
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from holdfast.client.admin import AdminClient
from holdfast.client.security import SecuritySettings
from holdfast.client.views import (
    BrokerNode,
    ClusterMetadata,
    CommittedOffset,
    ConfigValue,
    FetchedRecords,
    GroupListing,
    GroupView,
    IsolationLevel,
    LogDirView,
    NewTopic,
    OffsetAt,
    OffsetSpec,
    ProduceAck,
    TopicView,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, Offset, TimestampMs, TopicPartition

T = TypeVar("T")
P = ParamSpec("P")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, client: AdminClient, process: int) -> None:
    """Waits for nothing: the garbage collector may call it in any thread, the client's own too."""
    if process == os.getpid():  # after a fork there is no such thread, and its file descriptors are the parent's
        loop.call_soon_threadsafe(client.close)
        loop.call_soon_threadsafe(loop.stop)


class BlockingClient:
    """Same constructor, methods and errors as AdminClient (``aio`` is one); each method blocks until its outcome.

    May be used by several threads, not after a fork. ``close`` ends the thread; so does the garbage collector when
    nobody has the client any more.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "holdfast",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        retries: int | None = None,
        retry_pause_s: float | None = None,
        security: SecuritySettings | None = None,
    ) -> None:
        self.aio = AdminClient(
            bootstrap,
            client_id=client_id,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retries=retries,
            retry_pause_s=retry_pause_s,
            security=security,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="holdfast-client", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._loop, self.aio, os.getpid())
        self._end.atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; calls that still wait get their ConnectionLost."""
        if self._end.alive:
            self._end()
            self._thread.join()

    def submit(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        """Starts a call of ``aio``; its future may be waited for, cancelled, or left."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """One call of ``aio``, to its end."""
        future = self.submit(call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _blocking(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(method(*args, **kwargs))

    # -- KafkaClient -----------------------------------------------------------------------------------------

    def connect(self) -> None:
        return self._blocking(self.aio.connect)

    def metadata(self, topics: Iterable[str] | None = None, *, auto_create: bool = False) -> ClusterMetadata:
        return self._blocking(self.aio.metadata, topics, auto_create=auto_create)

    def topic(self, name: str, *, auto_create: bool = False) -> TopicView:
        return self._blocking(self.aio.topic, name, auto_create=auto_create)

    def leader(self, tp: TopicPartition) -> BrokerId:
        return self._blocking(self.aio.leader, tp)

    def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes | bytearray | memoryview,
        *,
        acks: int = -1,
        timeout_s: float | None = None,
        retry: bool = True,
    ) -> ProduceAck:
        return self._blocking(self.aio.produce, topic, partition, batch, acks=acks, timeout_s=timeout_s, retry=retry)

    def init_producer_id(self) -> tuple[int, int]:
        return self._blocking(self.aio.init_producer_id)

    def fetch_raw(
        self,
        tp: TopicPartition,
        offset: Offset,
        *,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> FetchedRecords:
        return self._blocking(
            self.aio.fetch_raw,
            tp,
            offset,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
        )

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | TimestampMs],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAt]:
        return self._blocking(self.aio.list_offsets, specs, isolation=isolation)

    # -- AdminClient -----------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, HoldfastError | None]:
        return self._blocking(self.aio.create_topics, topics, validate_only=validate_only)

    def create_topic(self, topic: NewTopic) -> None:
        self._blocking(self.aio.create_topic, topic)

    def delete_topics(self, names: Sequence[str]) -> dict[str, HoldfastError | None]:
        return self._blocking(self.aio.delete_topics, names)

    def create_partitions(self, name: str, count: int) -> None:
        self._blocking(self.aio.create_partitions, name, count)

    def describe_topic_configs(self, names: Iterable[str]) -> dict[str, tuple[ConfigValue, ...]]:
        return self._blocking(self.aio.describe_topic_configs, names)

    def describe_broker_configs(self, broker_id: BrokerId) -> tuple[ConfigValue, ...]:
        return self._blocking(self.aio.describe_broker_configs, broker_id)

    def describe_log_dirs(
        self, brokers: Iterable[BrokerId] | None = None, tps: Iterable[TopicPartition] | None = None
    ) -> dict[BrokerId, tuple[LogDirView, ...]]:
        return self._blocking(self.aio.describe_log_dirs, brokers, tps)

    def find_coordinator(self, group_id: str) -> BrokerNode:
        return self._blocking(self.aio.find_coordinator, group_id)

    def list_groups(self) -> list[GroupListing]:
        return self._blocking(self.aio.list_groups)

    def describe_group(self, group_id: str) -> GroupView:
        return self._blocking(self.aio.describe_group, group_id)

    def committed(
        self, group_id: str, tps: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        return self._blocking(self.aio.committed, group_id, tps)

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> None:
        self._blocking(self.aio.commit_offsets, group_id, offsets, timeout_s=timeout_s)

    def delete_group(self, group_id: str) -> None:
        self._blocking(self.aio.delete_group, group_id)
