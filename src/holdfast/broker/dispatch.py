"""From a framed request to the handler of its API, and from its result to the answer's bytes.

The one place that knows which module handles which API. Handlers are imported when their first request comes:
a test broker that only produces and fetches never pays for the rest.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.broker.admission import ORDERS
from holdfast.broker.entity import Unbuilt, built
from holdfast.broker.handlers import fetch as fetch_handler
from holdfast.broker.handlers import produce as produce_handler
from holdfast.broker.handlers.api_versions import VersionsAnswers, unsupported_version_answer
from holdfast.broker.handlers.base import Handler, HandlersHost, RequestContext, error_response
from holdfast.broker.handlers.refusals import lacks, refused
from holdfast.broker.large_requests import AT_ONCE, MOST, LargeRequests
from holdfast.broker.quotas import Measured
from holdfast.model.errors import HoldfastError, InvalidRequestError, UnknownServerError
from holdfast.protocol.apis import BETWEEN_BROKERS, OPERATORS, ApiKey, is_spoken
from holdfast.protocol.error_codes import NONE, UNKNOWN_SERVER_ERROR, code_of
from holdfast.protocol.framing import check_request, decode_checked, decode_request, encode_response
from holdfast.security.operations import check_complete

if TYPE_CHECKING:
    from holdfast.broker.exchange import Exchange
    from holdfast.model.listeners import ListenerUse

log = logging.getLogger(__name__)

HANDLERS: dict[ApiKey, str] = {
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.SASL_HANDSHAKE: "sasl",
    ApiKey.SASL_AUTHENTICATE: "sasl",
    ApiKey.METADATA: "metadata",
    ApiKey.DESCRIBE_CLUSTER: "metadata",
    ApiKey.LIST_OFFSETS: "offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offsets",
    ApiKey.DELETE_RECORDS: "offsets",
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.ELECT_LEADERS: "topics",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.ALTER_CONFIGS: "configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "alter_log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.DESCRIBE_QUORUM: "quorum",
    ApiKey.INIT_PRODUCER_ID: "producer_ids",
    ApiKey.ALLOCATE_PRODUCER_IDS: "producer_ids",
    ApiKey.ENVELOPE: "envelope",
    ApiKey.FIND_COORDINATOR: "coordinator",
    ApiKey.JOIN_GROUP: "groups",
    ApiKey.SYNC_GROUP: "groups",
    ApiKey.HEARTBEAT: "groups",
    ApiKey.LEAVE_GROUP: "groups",
    ApiKey.OFFSET_COMMIT: "group_offsets",
    ApiKey.OFFSET_FETCH: "group_offsets",
    ApiKey.LIST_GROUPS: "groups",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.DELETE_GROUPS: "groups",
    ApiKey.OFFSET_DELETE: "group_offsets",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offsets",
    ApiKey.UPDATE_FEATURES: "features",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "reassignments",
    ApiKey.LEADER_AND_ISR: "interbroker",
    ApiKey.STOP_REPLICA: "interbroker",
    ApiKey.UPDATE_METADATA: "interbroker",
    ApiKey.BROKER_REGISTRATION: "controller_api",
    ApiKey.BROKER_HEARTBEAT: "controller_api",
    ApiKey.ALTER_PARTITION: "controller_api",
    ApiKey.UNREGISTER_BROKER: "controller_api",
    ApiKey.MANAGE_LOG_DIRS: "disks",
    ApiKey.CLAIM_BROKER_ID: "broker_ids",
    ApiKey.MANAGE_BROKER_IDS: "broker_ids",
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "users",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "users",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions",
    ApiKey.WRITE_TXN_MARKERS: "txn_markers",
    ApiKey.DESCRIBE_PRODUCERS: "producers",
    ApiKey.LIST_TRANSACTIONS: "transactions",
    ApiKey.LIST_CONFIG_RESOURCES: "configs",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topic_partitions",
}
"""API -> module of broker/handlers with ``handle_<api name>``."""

check_complete(key.name for key in ApiKey)

MAX_DECODED_BYTES = 8 << 20
"""Requests other than Produce and Fetch become an object per field: twenty-five times their bytes. Larger ones are
refused, unless the controller sends them; so are those that name too much (large_requests.py)."""
_WAITING = frozenset((int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)))
"""For other clients, while nothing of them costs anything."""
_PRODUCE, _FETCH, _API_VERSIONS = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)


def is_taken(listener: ListenerUse, api_key: int) -> bool:
    """Whether a listener takes this API: what brokers say to each other is trusted, so it is taken where only brokers
    can speak. Fetch and OffsetForLeaderEpoch, which clients ask too, look for themselves."""
    if api_key in BETWEEN_BROKERS:
        return listener.for_brokers
    return listener.for_operators or api_key not in OPERATORS


def _count(exchange: Exchange, code: int) -> None:
    if code and exchange.times is not None:
        exchange.times.failed(exchange.header.api_key, code)


class DispatchHost(fetch_handler.FetchHost, produce_handler.ProduceHost, HandlersHost, Protocol):
    """The broker, for all handlers."""


class Dispatcher:
    """Calls handlers. Owns the set of running handler tasks of this broker."""

    def __init__(self, broker: DispatchHost) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._produce = produce_handler.ProduceHandler(broker)
        self._fetch = fetch_handler.FetchHandler(broker)
        self._versions = VersionsAnswers()
        self.large = LargeRequests()

    def dispatch(self, exchange: Exchange) -> None:
        """Start handling; the exchange is finished now or later. Closes the connection on what Kafka would."""
        header = exchange.header
        if self._broker.quota_view.limits_clients:
            self._broker.quotas.measure(exchange)
        try:
            if not is_spoken(header.api_key, header.api_version):
                if header.api_key == _API_VERSIONS:
                    exchange.finish([unsupported_version_answer(header.correlation_id)])
                    return
                exchange.connection.close(f"API key {header.api_key} version {header.api_version} is not spoken here")
            elif header.api_key == _API_VERSIONS:
                self._api_versions(exchange)
            elif header.api_key == _PRODUCE:
                self._produce.handle(exchange)
                if exchange.meter is not None:
                    exchange.meter.pause()
            elif header.api_key == _FETCH:
                self._fetch.handle(exchange)
                if exchange.answer is None and exchange.times is not None:
                    exchange.remote_s = -asyncio.get_running_loop().time()
                if exchange.meter is not None:
                    exchange.meter.pause()
            elif not is_taken(exchange.connection.listener, header.api_key):
                exchange.connection.close(
                    f"API key {header.api_key} is not taken on listener {exchange.connection.listener.name}"
                )
            else:
                self._start(exchange)
        except Exception as e:
            self._unreadable(exchange, e)

    def _api_versions(self, exchange: Exchange) -> None:
        ctx = self._context(exchange, bytes(exchange.body))
        answer, code = self._versions.answer(ctx, decode_request(ctx.api_key, ctx.version, ctx.body))
        _count(exchange, code)
        exchange.finish([answer])

    def _unreadable(self, exchange: Exchange, error: Exception) -> None:
        header = exchange.header
        log.debug("API key %d version %d cannot be handled", header.api_key, header.api_version, exc_info=error)
        exchange.connection.close(
            f"API key {header.api_key} version {header.api_version} cannot be handled: {type(error).__name__}: {error}"
        )

    def _start(self, exchange: Exchange) -> None:
        header = exchange.header
        key, version = header.api_key, header.api_version
        if key in ORDERS:
            if not self._may_order(exchange):
                return
        elif exchange.size > MAX_DECODED_BYTES:
            raise InvalidRequestError(f"{exchange.size} bytes, expected {MAX_DECODED_BYTES} at most for this API")
        ctx = self._context(exchange, bytes(exchange.body))
        # A broker tells as much as its cluster has, and does not wait behind clients.
        is_brokers = key in BETWEEN_BROKERS and not lacks(ctx)
        named = check_request(key, version, ctx.body, None if is_brokers else MOST)
        if exchange.meter is not None:
            exchange.meter.pause()
        if is_brokers or named <= AT_ONCE:
            running = self._run(exchange, ctx, decode_checked(key, version, ctx.body))
        else:
            running = self._run_large(exchange, dataclasses.replace(ctx, is_large=True))
        task = asyncio.get_running_loop().create_task(running)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _may_order(self, exchange: Exchange) -> bool:
        """Whether who gives an order of the controller may; else it is refused without being read, however large it is.
        Who may is a broker, whose connection lasts."""
        ctx = self._context(exchange, b"")
        response = refused(ctx, None) if ctx.is_judged else None
        if response is None:
            exchange.connection.is_lasting = True
            return True
        _count(exchange, int(response.error_code))
        exchange.finish([encode_response(exchange.header.correlation_id, response)])
        return False

    async def _run_large(self, exchange: Exchange, ctx: RequestContext) -> None:
        """One that names much, when it has a place."""
        async with self.large.places:
            if exchange.connection.closed:
                return
            decode = partial(decode_checked, ctx.api_key, ctx.version, ctx.body)
            try:
                request = await self.large.beside(decode, exchange.meter)
            except HoldfastError as e:
                self._unreadable(exchange, e)
                return
            if ctx.api_key not in _WAITING:
                await self._run(exchange, ctx, request)
                return
        await self._run(exchange, ctx, request)

    def _context(self, exchange: Exchange, body: bytes) -> RequestContext:
        header = exchange.header
        return RequestContext(
            broker=self._broker, connection=exchange.connection, api_key=header.api_key,
            version=header.api_version, correlation_id=header.correlation_id, client_id=header.client_id,
            body=body,
        )  # fmt: skip

    async def _run(self, exchange: Exchange, ctx: RequestContext, request: Any) -> None:
        try:
            responding = self.response_to(ctx, request)
            if exchange.meter is not None:
                responding = Measured(responding, exchange.meter)
            response, code = await responding
        except asyncio.CancelledError:
            exchange.connection.close(None)
            raise
        _count(exchange, code)
        if response is None:
            exchange.connection.close("request failed and its API has no field to say so")
            return
        try:
            answer = await self._encoded(exchange, ctx, response)
        except Exception:
            log.exception("API key %d version %d: the answer cannot be encoded", ctx.api_key, ctx.version)
            exchange.connection.close("answer cannot be encoded")
            return
        exchange.finish([answer])

    async def _encoded(self, exchange: Exchange, ctx: RequestContext, response: Any) -> bytes:
        meter = exchange.meter
        if isinstance(response, Unbuilt):
            response = await self.large.beside(partial(built, response), meter)
        if meter is not None:
            response = meter.told(response, ctx.api_key, ctx.version, ctx.correlation_id)
        if isinstance(response, (bytes, bytearray)):  # an answer that came from the controller as it is
            return bytes(response)
        encode = partial(encode_response, ctx.correlation_id, response)
        return await self.large.beside(encode, meter) if ctx.is_large else encode()

    async def response_to(self, ctx: RequestContext, request: Any) -> tuple[Any | None, int]:
        """The response of a request, or bytes of one that came from the controller as they are, and the error code that
        it counts as. None where the request has failed and its API has no field to say so."""
        try:
            response = refused(ctx, request) if ctx.is_judged else None
            if response is None:
                handler = self.handler_of(ctx.api_key)
                assert handler is not None, "is_spoken, and not Produce or Fetch"
                response = await handler(ctx, request)
            return response, int(getattr(response, "error_code", NONE))
        except HoldfastError as e:
            response, code = error_response(ctx.api_key, ctx.version, e), code_of(e)
            if response is None:
                log.warning("API key %d: %s: %s", ctx.api_key, type(e).__name__, e)
        except Exception as e:
            log.exception("API key %d version %d failed", ctx.api_key, ctx.version)
            code = UNKNOWN_SERVER_ERROR
            response = error_response(ctx.api_key, ctx.version, UnknownServerError(f"{type(e).__name__}: {e}"))
        return response, code

    def handler_of(self, api_key: int) -> Handler | None:
        """Its module is loaded when it is first asked for. None: an API without one, as Produce and Fetch are here."""
        handler = self._handlers.get(api_key)
        if handler is None:
            key = ApiKey(api_key)
            if key not in HANDLERS:
                return None
            module = import_module(f"holdfast.broker.handlers.{HANDLERS[key]}")
            handler = getattr(module, f"handle_{key.name.lower()}")
            self._handlers[api_key] = handler
        return handler

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    async def drain(self) -> None:
        """Cancel what still runs: the broker is ending."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.large.close()
