"""Which host has which broker id, where the metadata log keeps it: BrokerIdMapping for the embedded store.

Whoever asks is no broker yet, and the log has one writer. So the controller is asked; where nobody reigns, as at the
first start of a cluster or after one in which all have lost their disks, the locks are taken for one decision
(EmbeddedStore.in_passing). Either way one at a time decides, from all that is recorded, and records it before it is
told. A reign in passing knows of no sessions. So it takes nobody for alive, and decides nothing where the port of a
registered broker is served: that one will be the controller in a moment, and is asked then.

Blocking, but for the store's own patience with directories that do not answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.client.errors import AuthenticationError, BrokerUnreachable, ConnectionLost, RequestTimedOut
from holdfast.client.outgoing import Outgoing
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.metadata import broker_ids, host_records
from holdfast.metadata.broker_ids import (
    Applicant,
    Awaited,
    HostEntry,
    Nameless,
    Outcome,
    SeveralMissing,
    Step,
    Taken,
)
from holdfast.metadata.image import BrokerImage, ClusterImage
from holdfast.metadata.records import MetadataRecord
from holdfast.metadata.store import ControllerLocation
from holdfast.model.errors import (
    BrokerUnavailableError,
    FencedControllerError,
    HoldfastError,
    KafkaStorageError,
    NetworkError,
    NotControllerError,
    RequestTimedOutError,
)
from holdfast.model.types import BrokerId
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.broker_ids import (
    ClaimBrokerIdRequest,
    ClaimResult,
    HostAction,
    ManageBrokerIdsRequest,
)
from holdfast.protocol.error_codes import code_of, error_of

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 5.0
"""A controller probes a port, and commits."""
REFUSED_S: Final = 1.0
"""A controller that has closed the connection is not asked again for so long."""
PASSING_S: Final = 0.5
"""Between two reigns for one claim: each is written to every copy."""
_CLIENT_ID: Final = "broker-without-id"
_STEPS: Final = {ClaimResult.HOST: Step.HOST, ClaimResult.MISSING: Step.MISSING, ClaimResult.NEW: Step.NEW}
_Decide = Callable[[ClusterImage], tuple[Sequence[MetadataRecord], T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What a reign in passing came to; ``value`` None where a broker lives."""

    value: Any = None


class RecordedBrokerIds:
    """See the module's docstring."""

    def __init__(self, store: EmbeddedStore, outgoing: Outgoing | None = None) -> None:
        self._store = store
        self._outgoing = outgoing or Outgoing()
        self._reigner = -2 - random.getrandbits(30)
        self._refused: ControllerLocation | None = None
        self._ask_again_s = self._pass_again_s = 0.0
        """By the monotonic clock: when the controller that has closed the connection is asked again, and when the next
        reign in passing may be."""

    def hosts(self) -> Mapping[str, HostEntry]:
        """Everything that is kept. KafkaStorageError when nobody can say now."""
        return self._changed(ManageBrokerIdsRequest(), lambda image: ())

    def take(self, applicant: Applicant) -> Outcome | None:
        """An id for a broker that starts; None: nobody can say now, ask again soon. KafkaStorageError when what is kept
        cannot be read or written; errors that the controller answers with."""

        def decide(image: ClusterImage) -> tuple[Sequence[MetadataRecord], Outcome]:
            outcome = broker_ids.take(host_records.known(image, frozenset()), applicant)
            return (host_records.taken(image, applicant, outcome) if isinstance(outcome, Taken) else ()), outcome

        request = ClaimBrokerIdRequest(
            cluster_id=self._store.cluster_id(),
            host=broker_ids.check_host(applicant.host),
            claimant=applicant.claimant,
            address=applicant.address,
            adopts=applicant.adopts,
            may_be_new=applicant.may_be_new,
            insists=applicant.insists,
            reserved_max=applicant.reserved_max,  # type: ignore[arg-type]
        )
        found = self._by_controller(request, _outcome)
        if found is None and time.monotonic() >= self._pass_again_s:
            found = self._in_passing(decide)
        return found

    def remember(self, host: str, broker_id: BrokerId) -> None:
        """Nothing: a registration says the host."""

    def put(self, host: str, broker_id: BrokerId) -> None:
        """A person says so. KafkaStorageError when it cannot be recorded now."""
        entry = HostEntry(broker_id=broker_ids.check_id(broker_id))
        request = ManageBrokerIdsRequest(
            action=HostAction.SET,  # type: ignore[arg-type]
            host=broker_ids.check_host(host),
            broker_id=broker_id,  # type: ignore[arg-type]
        )
        self._changed(request, lambda image: tuple(host_records.put(image, host, entry)))

    def forget(self, host: str) -> bool:
        """Whether something was kept of the host."""
        if host not in self.hosts():
            return False
        request = ManageBrokerIdsRequest(action=HostAction.FORGET, host=host)  # type: ignore[arg-type]
        self._changed(request, lambda image: tuple(host_records.forget(image, host)))
        return True

    def _changed(
        self, request: ManageBrokerIdsRequest, records_of: Callable[[ClusterImage], Sequence[MetadataRecord]]
    ) -> Mapping[str, HostEntry]:
        def decide(image: ClusterImage) -> tuple[Sequence[MetadataRecord], Mapping[str, HostEntry]]:
            records = records_of(image)
            return records, host_records.hosts(image.apply(records, image.next_offset)[0])

        found = self._by_controller(request, _entries)
        if found is None:
            found = self._in_passing(decide)
        if found is None:
            raise KafkaStorageError("there is no controller that answers now, and another process has the metadata")
        return found

    # -- the controller --------------------------------------------------------------------------------------------

    def _by_controller(self, request: Any, read: Callable[[Any], T]) -> T | None:
        """What the controller answers; None when none does."""
        location = self._store.active()
        if location is None or (location == self._refused and time.monotonic() < self._ask_again_s):
            return None
        try:
            answer = asyncio.run(_ask(self._outgoing, location, request))
        except ConnectionLost as e:
            self._ask_again_s = time.monotonic() + REFUSED_S
            if location != self._refused:
                self._refused = location
                log.warning(
                    "the controller, broker %d at %s:%d, has not answered (%s): it ends, or is of a version that gives "
                    "no ids: then upgrade it first, or set node.id", location.broker_id, location.host, location.port, e
                )  # fmt: skip
            return None
        except (NetworkError, RequestTimedOutError) as e:
            log.debug("no answer of the controller: %s", e)
            return None
        error = error_of(int(answer.error_code), answer.error_message)
        if isinstance(error, (NotControllerError, RequestTimedOutError)):
            return None
        if error is not None:
            raise error
        return read(answer)

    def _in_passing(self, decide: _Decide[T]) -> T | None:
        """What is decided where nobody reigns; None when somebody does, or will."""

        def decide_alone(image: ClusterImage) -> tuple[Sequence[MetadataRecord], _Decided]:
            somebody_lives: bool = asyncio.run(_any_lives(self._outgoing, list(image.brokers.values())))
            if somebody_lives:
                return (), _Decided()
            records, value = decide(image)
            return records, _Decided(value=value)

        try:
            decided = self._store.in_passing(self._reigner, decide_alone)
        except FencedControllerError as e:  # somebody reigns who found other copies good: that one is asked
            log.info("an id was not decided on: %s", e)
            return None
        if decided is None:
            return None
        self._pass_again_s = time.monotonic() + PASSING_S
        found: T | None = decided.value
        return found


async def _ask(outgoing: Outgoing, location: ControllerLocation, request: Any) -> Any:
    connection = outgoing.connection(location.endpoint, _CLIENT_ID)
    try:
        await connection.open(CONNECT_TIMEOUT_S)
        return await connection.request(request, timeout_s=ANSWER_TIMEOUT_S)
    finally:
        connection.close()


async def _any_lives(outgoing: Outgoing, brokers: Sequence[BrokerImage]) -> bool:
    answers: list[bool] = await asyncio.gather(*(_lives(outgoing, broker) for broker in brokers))
    return True in answers


async def _lives(outgoing: Outgoing, broker: BrokerImage) -> bool:
    """Whether its port is a broker's. One that does not answer in time may be stopped for a moment, if it was alive."""
    connection = outgoing.probe(broker.endpoints.for_controller, _CLIENT_ID)
    try:
        await connection.open(CONNECT_TIMEOUT_S)
        answer = await connection.request_raw(int(ApiKey.API_VERSIONS), 0, b"", timeout_s=CONNECT_TIMEOUT_S)
        return int.from_bytes(answer[:2], "big") != code_of(BrokerUnavailableError)
    except BrokerUnreachable as e:
        return not e.refused and not broker.fenced
    except (RequestTimedOut, AuthenticationError):  # somebody speaks TLS there who is not believed
        return not broker.fenced
    except HoldfastError:  # it hangs up, or is somebody else's
        return False
    finally:
        connection.close()


def _outcome(answer: Any) -> Outcome:
    result, broker_id = ClaimResult(int(answer.result)), int(answer.broker_id)
    if result in _STEPS:
        return Taken(broker_id=broker_id, step=_STEPS[result])
    if result is ClaimResult.AWAITED:
        return Awaited(broker_id=broker_id)
    if result is ClaimResult.SEVERAL_MISSING:
        return SeveralMissing(missing=tuple(map(int, answer.missing)))
    return Nameless()


def _entries(answer: Any) -> Mapping[str, HostEntry]:
    return {each.host: HostEntry(broker_id=int(each.broker_id)) for each in answer.hosts}
