"""Walks the samples: each asked by a user that has the rights of one case, and what came of it.

A case is a login of its own: no right, each right but one, exactly the rights, a DENY of each beside them, a super
user. The users are in the brokers' files (PLAIN), their rights are ACLs that the walk makes through the API. First all
that must be refused is asked, between two looks at everything that the cluster tells a super user; then the rest.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from holdfast.broker.entity import build
from holdfast.client.connection import BrokerConnection
from holdfast.client.sasl import SaslSettings
from holdfast.model.errors import HoldfastError, NetworkError, RequestTimedOutError
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.security.resources import PatternKind, Permission
from tests.rights.samples import NO_ID, PREFIX, Names, Need, Sample, name_of, text_of

TIMEOUT_S: Final = 30.0
ANSWER_S: Final = 10.0
ADMIN, PASSWORD = "admin", "secret-of-all"
"""A super user; everybody has this password."""
AUTHORIZATION_CODES: Final = frozenset((29, 30, 31, 53, 65))
CLOSED: Final = "no answer"


class Kind(Enum):
    """What a user has."""

    NOTHING = "no right"
    BUT_ONE = "each right but one"
    EXACTLY = "exactly the rights"
    DENIED = "a DENY beside them"
    SUPER = "super user"


@dataclass(frozen=True, slots=True)
class Case:
    """``without``: the need that is missing, or denied."""

    sample: Sample
    number: int
    kind: Kind
    without: Need | None = None
    at: int = 0

    @property
    def user(self) -> str:
        return ADMIN if self.kind is Kind.SUPER else f"u{self.number}-{self.kind.name.lower()}-{self.at}"

    @property
    def is_refused(self) -> bool:
        return self.kind not in (Kind.EXACTLY, Kind.SUPER) and self.without not in self.sample.partly

    def names(self, shared: Names, ids: Mapping[str, UUID]) -> Names:
        """What is used up is of this case alone."""
        if self.is_refused or not self.sample.spends:
            return dataclasses.replace(shared, topic_id=ids.get(shared.topic, NO_ID))
        own = f"{PREFIX}{self.number}-{self.kind.name.lower()}-{self.at}"
        return dataclasses.replace(
            shared, topic=own, group=own, transaction=own, new=f"new-{own}", topic_id=ids.get(own, NO_ID)
        )

    def acls(self, shared: Names) -> Iterator[tuple[Need, str, Permission]]:
        """Entries for its user."""
        names = self.names(shared, {})
        if self.kind in (Kind.NOTHING, Kind.SUPER):
            return
        for need in self.sample.needs:
            if self.kind is not Kind.BUT_ONE or need != self.without:
                yield need, name_of(need, names), Permission.ALLOW
        if self.kind is Kind.DENIED and self.without is not None:
            yield self.without, name_of(self.without, names), Permission.DENY


def cases(samples: Sequence[Sample]) -> list[Case]:
    """All of them, in the order of the page."""
    found = []
    for number, sample in enumerate(samples):
        found.append(Case(sample, number, Kind.NOTHING))
        if len(sample.needs) > 1:
            found += [Case(sample, number, Kind.BUT_ONE, need, at) for at, need in enumerate(sample.needs)]
        found.append(Case(sample, number, Kind.EXACTLY))
        found += [Case(sample, number, Kind.DENIED, need, at) for at, need in enumerate(sample.needs)]
        found.append(Case(sample, number, Kind.SUPER))
    return found


def jaas(users: Iterable[str]) -> str:
    """The line of PLAIN for these users, and for the brokers themselves."""
    entries = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{PASSWORD}" user_{ADMIN}="{PASSWORD}" {entries};'
    )


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await is_so():  # noqa: ASYNC110 - a broker is asked, which has no event here
            await asyncio.sleep(0.05)


def codes_of(answer: Any) -> list[int]:
    """All error codes of an answer, from its top down."""
    found: list[int] = []
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.append(int(value))
        elif isinstance(value, tuple):
            for each in value:
                if dataclasses.is_dataclass(each):
                    found += codes_of(each)
        elif dataclasses.is_dataclass(value):
            found += codes_of(value)
    return found


def entry(need: Need, name: str, user: str, permission: Permission) -> dict[str, Any]:
    """As CreateAcls has one."""
    return {
        "resource_type": int(need[1]), "resource_name": name, "resource_pattern_type": int(PatternKind.LITERAL),
        "principal": f"User:{user}", "host": "*", "operation": int(need[0]), "permission_type": int(permission),
    }  # fmt: skip


async def asked_by(connection: BrokerConnection, api: str, version: int, values: Mapping[str, Any]) -> Any:
    """The answer over a connection that stays open."""
    return await connection.request(build(request_type(ApiKey[api], version), values), timeout_s=ANSWER_S)


async def codes_by(connection: BrokerConnection, api: str, version: int, values: Mapping[str, Any]) -> list[int]:
    """Its error codes."""
    return codes_of(await asked_by(connection, api, version, values))


class Walk:
    """One broker, asked by many."""

    def __init__(self, host: str, port: int, shared: Names | None = None) -> None:
        self.host, self.port = host, port
        self.shared = shared or Names()
        self.ids: dict[str, UUID] = {}

    async def opened(self, user: str | None) -> BrokerConnection:
        """A connection; None: nobody has logged in by it."""
        sasl = None if user is None else SaslSettings(mechanism="PLAIN", user=user, password=PASSWORD)
        connection = BrokerConnection(self.host, self.port, "walk", sasl=sasl)
        await connection.open(TIMEOUT_S)
        return connection

    async def ask(self, user: str, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """None: the connection was closed, or nothing was answered."""
        connection = await self.opened(user)
        try:
            return await asked_by(connection, api, version, values)
        except (NetworkError, RequestTimedOutError):
            return None
        finally:
            connection.close()

    def brokers(self) -> int:
        """How many there are, as far as this one knows; 0 while it does not answer."""
        try:
            answer = asyncio.run(self.ask(ADMIN, "METADATA", 12, {"topics": ()}))
        except (HoldfastError, OSError):
            return 0
        return 0 if answer is None or answer.controller_id < 0 else len(answer.brokers)

    def controller(self) -> int:
        return int(asyncio.run(self.ask(ADMIN, "METADATA", 12, {"topics": ()})).controller_id)

    async def outcome(self, case: Case) -> str:
        """The error codes of the answer, or that there was none; and what it tells, where that depends on rights."""
        sample = case.sample
        answer = await self.ask(case.user, sample.api, sample.version, sample.values(case.names(self.shared, self.ids)))
        if answer is None:
            return CLOSED
        told = sorted(set(codes_of(answer)) - {0})
        text = ", ".join(map(str, told)) or "0"
        return f"{text}: {sample.seen(answer)}" if sample.seen is not None and not told else text

    async def told(self, user: str, sample: Sample, names: Names) -> str:
        """All of an answer, with what was named left out."""
        answer = await self.ask(user, sample.api, sample.version, sample.values(names))
        text = repr(answer)
        for name in (names.topic, names.group, names.transaction):
            text = text.replace(name, "...")
        return text

    # -- before -------------------------------------------------------------------------------------------------

    async def prepare(self, all_cases: Sequence[Case], *, coordinates: bool) -> None:
        """Topics, a group with an offset and a transaction if this broker coordinates them, and everybody's rights."""
        await self._make_topics(all_cases)
        if coordinates:
            await self.found(0, self.shared.group)
            await self.found(1, self.shared.transaction)
            await self._commit()
            await self._begin()
        entries = [
            entry(need, name, case.user, permission)
            for case in all_cases
            for need, name, permission in case.acls(self.shared)
        ]
        answer = await self.ask(ADMIN, "CREATE_ACLS", 3, {"creations": entries})
        assert {int(result.error_code) for result in answer.results} == {0}
        await self._rights_are_known(all_cases)

    async def _make_topics(self, all_cases: Sequence[Case]) -> None:
        wanted = {self.shared.topic} | {case.names(self.shared, {}).topic for case in all_cases}
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in sorted(wanted)]
        answer = await self.ask(ADMIN, "CREATE_TOPICS", 7, {"topics": topics, "timeout": 30_000})
        assert {int(topic.error_code) for topic in answer.topics} == {0}
        self.ids = {str(topic.name): topic.topic_id for topic in answer.topics}

        async def are_led() -> bool:
            return len(await self._led()) >= len(wanted)

        await _until(are_led)

    async def _led(self) -> list[str]:
        answer = await self.ask(ADMIN, "METADATA", 12, {"topics": None})
        return [t.name for t in answer.topics if t.partitions and all(p.leader_id >= 0 for p in t.partitions)]

    async def found(self, kind: int, key: str) -> None:
        """Its coordinator."""

        async def is_found() -> bool:
            answer = await self.ask(ADMIN, "FIND_COORDINATOR", 4, {"key_type": kind, "coordinator_keys": [key]})
            return codes_of(answer) == [0]

        await _until(is_found)

    async def done(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """The answer, once it has no error."""
        answers = []

        async def is_done() -> bool:
            answers[:] = [await self.ask(ADMIN, api, version, values)]
            return set(codes_of(answers[0])) == {0}

        await _until(is_done)
        return answers[0]

    async def _commit(self) -> None:
        offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": self.shared.topic, "partitions": [offset]}]
        group: dict[str, Any] = {"group_id": self.shared.group, "generation_id_or_member_epoch": -1, "member_id": ""}
        await self.done("OFFSET_COMMIT", 8, group | {"topics": topics})

    async def _begin(self) -> None:
        """An open transaction that has the topic in it."""
        name = self.shared.transaction
        values = {"transactional_id": name, "transaction_timeout": 600_000, "producer_id": -1, "producer_epoch": -1}
        given = await self.done("INIT_PRODUCER_ID", 4, values)
        added = {
            "v3_and_below_transactional_id": name, "v3_and_below_producer_id": given.producer_id,
            "v3_and_below_producer_epoch": given.producer_epoch,
            "v3_and_below_topics": [{"name": self.shared.topic, "partitions": [0]}],
        }  # fmt: skip
        await self.done("ADD_PARTITIONS_TO_TXN", 3, added)

    async def _rights_are_known(self, all_cases: Sequence[Case]) -> None:
        """The broker has heard of the last entries: a request that changes nothing is not refused any more."""
        last = next(case for case in reversed(all_cases) if case.kind is Kind.EXACTLY and not case.sample.spends)

        async def is_known() -> bool:
            sample = last.sample
            answer = await self.ask(last.user, sample.api, sample.version, sample.values(last.names(self.shared, {})))
            return answer is not None and not AUTHORIZATION_CODES & set(codes_of(answer))

        await _until(is_known)

    # -- all that there is ---------------------------------------------------------------------------------------

    async def everything(self) -> list[str]:
        """Image, logs, offsets, groups, as a super user is told of them."""
        metadata = await self.ask(ADMIN, "METADATA", 12, {"topics": None})
        ends = []
        for timestamp in (-1, -2):
            partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            topics = [{"name": t.name, "partitions": [partition]} for t in metadata.topics]
            ends.append(await self.ask(ADMIN, "LIST_OFFSETS", 7, {"replica_id": -1, "topics": topics}))
        any_acl = {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
            "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        offsets = {"groups": [{"group_id": self.shared.group, "member_epoch": -1, "topics": None}]}
        configs = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((2, self.shared.topic), (4, str(self.shared.broker)), (4, ""))
        ]
        told = [
            metadata, *ends,
            await self.ask(ADMIN, "OFFSET_FETCH", 8, offsets),
            await self.ask(ADMIN, "LIST_GROUPS", 4, {}),
            await self.ask(ADMIN, "DESCRIBE_GROUPS", 5, {"groups": [self.shared.group]}),
            await self.ask(ADMIN, "LIST_TRANSACTIONS", 0, {}),
            await self.ask(ADMIN, "DESCRIBE_TRANSACTIONS", 0, {"transactional_ids": [self.shared.transaction]}),
            await self.ask(ADMIN, "DESCRIBE_CONFIGS", 4, {"resources": configs}),
            await self.ask(ADMIN, "DESCRIBE_ACLS", 3, any_acl),
            await self.ask(ADMIN, "DESCRIBE_CLIENT_QUOTAS", 1, {"components": [], "strict": False}),
            await self.ask(ADMIN, "DESCRIBE_USER_SCRAM_CREDENTIALS", 0, {"users": None}),
            await self.ask(ADMIN, "LIST_PARTITION_REASSIGNMENTS", 0, {"timeout": 5000, "topics": None}),
        ]  # fmt: skip
        assert all(answer is not None for answer in told)
        return [line for answer in told for line in _lines(answer)]


def _lines(answer: Any) -> list[str]:
    """The same for the same content, in whatever order it came."""
    lines = []
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if field.name == "throttle_time":
            continue
        if isinstance(value, tuple):
            lines += sorted(f"{field.name}: {each!r}" for each in value)
        else:
            lines.append(f"{field.name}: {value!r}")
    return lines


@dataclass(frozen=True, slots=True)
class Walked:
    """What came of every case; and what had changed when all that is refused had been asked."""

    outcomes: Mapping[Case, str]
    changed: Sequence[str]


async def walked(walk: Walk, samples: Sequence[Sample], *, coordinates: bool = True) -> Walked:
    """See the module. ``coordinates``: all groups and transactions are this broker's."""
    all_cases = cases(samples)
    await walk.prepare(all_cases, coordinates=coordinates)
    before = await walk.everything()
    outcomes = {case: await walk.outcome(case) for case in all_cases if case.is_refused}
    after = await walk.everything()
    for case in all_cases:
        if not case.is_refused:
            outcomes[case] = await walk.outcome(case)
    return Walked(outcomes, sorted(set(before) ^ set(after)))


def rows(outcomes: Mapping[Case, str], samples: Sequence[Sample]) -> Iterator[tuple[str, ...]]:
    """Of the page: the sample, its rights, and what came of each kind of case."""
    for number, sample in enumerate(samples):
        of_sample = [(case, text) for case, text in outcomes.items() if case.number == number]
        told = [sample.title, " + ".join(text_of(need) for need in sample.needs)]
        for kind in Kind:
            found = [
                f"{text} (without {text_of(case.without)})" if kind is Kind.BUT_ONE and case.without else text
                for case, text in of_sample
                if case.kind is kind
            ]
            told.append("; ".join(dict.fromkeys(found)) or "-")
        yield tuple(told)
