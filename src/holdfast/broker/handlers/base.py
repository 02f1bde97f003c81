"""What every handler gets and gives.

A handler is ``async def handle_x(ctx: RequestContext, request) -> response``: kio entities of one version in and
out. It raises HoldfastError only where the response has a top-level error code; errors of single topics and
partitions are its own affair (``per_partition``). Produce and Fetch bypass this: produce.py and fetch.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from holdfast.broker.entity import Unbuilt, build
from holdfast.model.config_protocol import NEWEST, PROTOCOL_VERSION
from holdfast.model.errors import HoldfastError, NotControllerError, UnsupportedVersionError
from holdfast.protocol.apis import response_type
from holdfast.security.operations import SUPPORTED, bits, refusal
from holdfast.security.resources import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from holdfast.broker.access import Access
    from holdfast.broker.certificates import Certificates
    from holdfast.broker.controller_loop import ControllerLoop
    from holdfast.broker.cordons import Cordons
    from holdfast.broker.disks import Disks
    from holdfast.broker.exchange import Answering
    from holdfast.broker.kept_ids import KeptIds
    from holdfast.broker.large_requests import LargeRequests
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.broker.moves import Moves
    from holdfast.broker.producer_ids import ProducerIdShell
    from holdfast.broker.quota_view import QuotaView
    from holdfast.broker.quotas import ClientQuotas
    from holdfast.broker.topic_creation import TopicCreation
    from holdfast.broker.transactional_appends import TransactionalAppends
    from holdfast.broker.user_view import UserView
    from holdfast.groups.coordinator import GroupCoordinator
    from holdfast.model.config import BrokerConfig
    from holdfast.model.types import BrokerId
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.security.principal import Principal
    from holdfast.storage.log_manager import LogManager
    from holdfast.transactions.coordinator import TransactionCoordinator


T = TypeVar("T")


class Responding(Protocol):
    """The dispatcher, for a request that came inside another one."""

    large: LargeRequests

    def handler_of(self, api_key: int) -> Any: ...

    async def response_to(self, ctx: Any, request: Any) -> tuple[Any | None, int]: ...


class HandlersHost(Protocol):
    """The parts of the broker that handlers work with."""

    access: Access
    broker_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    controller: ControllerLoop | None
    certificates: Certificates
    cordons: Cordons
    disks: Disks
    groups: GroupCoordinator
    kept_ids: KeptIds | None
    list_changes: asyncio.Lock
    """One change of a list in a configuration at a time."""
    logs: LogManager
    membership: Membership
    metadata: MetadataCache
    moves: Moves
    producer_ids: ProducerIdShell
    quota_view: QuotaView
    quotas: ClientQuotas
    replicas: LocalReplicas
    topic_creation: TopicCreation
    transactions: TransactionCoordinator
    transactional_appends: TransactionalAppends
    user_view: UserView

    @property
    def dispatcher(self) -> Responding: ...

    def offsets_ended(self, partition: int, producer_id: int, is_commit: bool) -> None: ...

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    def apply_metadata(self, request: Any) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, where that is not who is at the other end of the connection."""

    principal: Principal
    host: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's surroundings."""

    broker: HandlersHost
    connection: Answering
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: bytes
    """The request as it came, without its header: forwarded to the controller as it is."""
    is_large: bool = False
    """Whether it names so much that its answer is made beside the loop (large_requests.py)."""
    asker: Asker | None = None
    """Who asked the broker that has forwarded it (handlers/envelope.py); None: it came from who asks."""

    @property
    def host(self) -> str:
        """The address of who asks."""
        return str(self.connection.peer[0]) if self.asker is None else self.asker.host

    @property
    def client_host(self) -> str:
        """The same as Kafka prints it."""
        return f"/{self.host}"

    @property
    def now_ms(self) -> int:
        """Wall clock, milliseconds."""
        return self.broker.now_ms()

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.session.principal if self.asker is None else self.asker.principal

    @property
    def is_judged(self) -> bool:
        """Whether there is an authorizer."""
        return self.broker.access.authorizer is not None

    def may(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> bool:
        """Whether who asks may do this; without a name: to the cluster. It is told to nobody: ``missing`` is."""
        return not self.is_judged or self.broker.access.may(self.principal, self.host, operation, kind, name)

    def may_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether who asks may do this to anything of the kind."""
        return not self.is_judged or self.broker.access.may_any(self.principal, self.host, operation, kind)

    def allowed(
        self, operation: Operation, kind: ResourceKind, names: Iterable[str], *, is_filter: bool = False
    ) -> frozenset[str]:
        """Those of ``names`` on which who asks may do this. ``is_filter``: they were not asked for by name, and the
        others are left out: that is told to nobody (audit.py)."""
        asked = frozenset(names)
        if not self.is_judged:
            return asked
        found = self.broker.access.allowed(self.principal, self.host, operation, kind, asked)
        if not is_filter:
            for name in sorted(asked if self.broker.access.tells_allowed else asked - found):
                self._tell(operation, kind, name)
        return found

    def operations(self, kind: ResourceKind, name: str = CLUSTER_NAME) -> int:
        """What who asks may do to one thing, as bits of the answers that tell it."""
        if not self.is_judged:
            return bits(SUPPORTED[kind])
        return self.broker.access.operations(self.principal, self.host, kind, name)

    def missing(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> HoldfastError | None:
        """The error of who may not do this; None: who asks may. Either is told (audit.py)."""
        if not self.may(operation, kind, name):
            return self.denied(operation, kind, name)
        if self.broker.access.tells_allowed:
            self._tell(operation, kind, name)
        return None

    def denied(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> HoldfastError:
        """The error of who may not do this, which is told."""
        self._tell(operation, kind, name)
        return refusal(kind)

    def _tell(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        self.broker.access.tell(self.principal, self.host, operation, kind, name, self.api_key)

    async def submit(self, event: Any) -> Any:
        """An event to the controller that this broker is; NotControllerError when it is not."""
        controller = self.broker.controller
        if controller is None:
            raise NotControllerError(f"broker {self.broker.broker_id} is not the controller")
        return await controller.submit(event)


async def answered(start: Callable[[Callable[[T], None]], None]) -> T:
    """What is replied to the callback that ``start`` gets, whenever that is; nobody listens once the request's task has
    been cancelled, because the broker ends."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def reply(result: T) -> None:
        if not future.done():
            future.set_result(result)

    start(reply)
    return await future


Handler: TypeAlias = Callable[[RequestContext, Any], Awaitable[Any]]


def error_response(api_key: int, version: int, error: HoldfastError) -> Any | None:
    """A response of this API that carries just the error, or None where it has no top-level error code."""
    kind = response_type(api_key, version)
    if all(f.name != "error_code" for f in dataclasses.fields(kind)):
        return None
    return build(kind, {"error_code": error, "error_message": str(error)})


def older_protocol(ctx: RequestContext) -> UnsupportedVersionError | None:
    """Why nothing is recorded that a broker of the software before cannot read; None: all brokers have this one."""
    if ctx.broker.config.protocol_is_newest:
        return None
    version = ctx.broker.config.str(PROTOCOL_VERSION)
    return UnsupportedVersionError(f"{PROTOCOL_VERSION}={version} keeps no such thing: expected {NEWEST}")


def respond(ctx: RequestContext, **values: Any) -> Any:
    """The response of the request's API and version with these fields (entity.py); for a large request what it is to be
    made of, which nobody changes any more."""
    kind = response_type(ctx.api_key, ctx.version)
    return Unbuilt(kind, values) if ctx.is_large else build(kind, values)
