"""Which broker this is (KIP-426): node.id of its configuration, or what can be found out before it is made.

Owns the order of asking, and the key of the host. The steps are metadata/broker_ids.py; what the cluster knows is asked
of its BrokerIdMapping. Done before the broker is made, so that everything in it has an id from the first line on.

    node.id -> meta.properties of the log directories -> the cluster's mapping, asked until it can say

A log directory that cannot be read, or does not answer, may say who this broker was. So its host's id is taken then,
and no other one is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.broker.reigns import in_thread
from holdfast.coordination.lanes import reasons_of, values_of
from holdfast.coordination.stores import open_broker_ids
from holdfast.metadata.broker_ids import Applicant, Awaited, Nameless, SeveralMissing, Taken, check_host, own_id
from holdfast.metadata.store import Fatal
from holdfast.model import config_id_keys as keys
from holdfast.model.config import STORE_EMBEDDED, absolute_path
from holdfast.model.config_protocol import NEWEST, PROTOCOL_VERSION
from holdfast.model.errors import (
    ConfigError,
    GenerateBrokerIdError,
    InconsistentMetaPropertiesError,
    KafkaStorageError,
)
from holdfast.storage.log_dir import META_PROPERTIES
from holdfast.storage.stored_ids import stored_id

if TYPE_CHECKING:
    from holdfast.broker.platform import Platform, WorkThread
    from holdfast.coordination.stores import OpenIds
    from holdfast.model.config import BrokerConfig
    from holdfast.model.types import BrokerId

log = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""How long a log directory may take to say which broker it is of."""
RETRY_S: Final = 0.05
STORAGE_RETRY_S: Final = 1.0
SAY_AFTER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the log directories say: the id in each, by the path of its file; and why others say nothing."""

    ids: dict[str, BrokerId | None]
    unread: dict[str, str]


def host_key(config: BrokerConfig) -> str | None:
    """What this broker's host is called (broker.id.host.key); None: nothing is kept of it. ConfigError."""
    if not config.protocol_is_newest:
        return None
    kind = config.optional_str(keys.HOST_KEY) or _usual(config)
    if kind == keys.KEY_NONE:
        return None
    if kind.startswith(keys.KEY_FIXED):
        return check_host(kind.removeprefix(keys.KEY_FIXED))
    if kind == keys.KEY_LISTENER:
        return check_host(address(config) or "")
    if kind == keys.KEY_LOG_DIR:
        return check_host(absolute_path(config.log_dirs[0]))
    if kind == keys.KEY_MAC:
        return _mac()
    return check_host(socket.gethostname())


def _usual(config: BrokerConfig) -> str:
    """The key where none is given: brokers of the embedded store share a machine, so its name tells nothing."""
    if config.str("metadata.store") != STORE_EMBEDDED:
        return keys.KEY_HOSTNAME
    return keys.KEY_LISTENER if address(config) is not None else keys.KEY_LOG_DIR


def address(config: BrokerConfig) -> str | None:
    """HOST:PORT by which other brokers will reach this one; None: any port will do."""
    endpoint = config.listening.told_to_brokers
    return f"{endpoint.host or socket.gethostname()}:{endpoint.port}" if endpoint.port else None


def _mac() -> str:
    number = uuid.getnode()
    if number >> 40 & 1:  # drawn at random for want of one: another one at the next start
        raise ConfigError(f"{keys.HOST_KEY}={keys.KEY_MAC}: this machine has no MAC address: expected another key")
    return ":".join(f"{number >> shift & 0xFF:02x}" for shift in range(40, -8, -8))


def _read(config: BrokerConfig, platform: Platform) -> Stored:
    """What the log directories say that answer in time. Blocking."""
    dirs = {f"{path}/{META_PROPERTIES}": path for path in config.log_dirs}
    lanes = platform.lanes("meta-properties")
    try:
        jobs = {name: partial(stored_id, platform.files, path) for name, path in dirs.items()}
        answers = lanes.ask(jobs, patience_s=PATIENCE_S, limit_s=PATIENCE_S)
    finally:
        lanes.close()
    for answer in answers.values():
        if isinstance(answer.error, InconsistentMetaPropertiesError):
            raise answer.error
    unread = {dirs[name]: why for name, why in reasons_of(list(dirs), answers).items()}
    return Stored(ids=values_of(answers), unread=unread)


async def identify(config: BrokerConfig, platform: Platform) -> BrokerConfig:
    """The configuration with node.id, found out where it is not given. Returns when that can be said.

    ConfigError, InconsistentMetaPropertiesError, GenerateBrokerIdError: a person must do something.
    """
    if config.given_id is not None:
        return config
    if not config.bool(keys.GENERATION):
        raise ConfigError(
            f"node.id is not set and {keys.GENERATION}=false: expected a number >= 0 that no other broker has"
        )
    config.listening.refuse()  # as the start would, before there is an id for it
    thread = platform.thread("broker-id", asyncio.get_running_loop())
    try:
        stored: Stored = await in_thread(thread, partial(_read, config, platform))
        own = own_id(None, stored.ids)
        if own is not None:
            log.info(
                "node.id is not set: it is %d, as %s says", own, next(p for p, i in stored.ids.items() if i == own)
            )
            return config.identified(own)
        return config.identified(await _ask(config, platform, thread, stored))
    finally:
        thread.close()


async def _ask(config: BrokerConfig, platform: Platform, thread: WorkThread, stored: Stored) -> BrokerId:
    """The id that the cluster's mapping gives."""
    host = host_key(config)
    if not config.protocol_is_newest:
        raise ConfigError(
            f"node.id is not set, no log directory says which broker this is, and with "
            f"{PROTOCOL_VERSION}={config.str(PROTOCOL_VERSION)} no ids are given out: expected a node.id, or {NEWEST}"
        )
    if host is None:
        raise ConfigError(
            f"node.id is not set and {keys.HOST_KEY}={keys.KEY_NONE}: expected one of them, as no log directory says "
            f"which broker this is"
        )
    applicant = Applicant(
        host=host,
        claimant=platform.new_id(),
        address=address(config),
        adopts=config.bool(keys.ADOPT_MISSING),
        may_be_new=not stored.unread,
        reserved_max=config.int(keys.RESERVED_MAX),
    )
    opened = open_broker_ids(config, platform)
    try:
        await in_thread(thread, opened.open)
        taken = await _until_taken(opened, thread, applicant, config.int("broker.session.timeout.ms") / 1000, stored)
    finally:
        thread.submit(opened.close, lambda *_: None)  # not waited for: a directory may hang, and this be told to end
    log.warning("node.id is not set: it is %d, %s: host %s", taken.broker_id, taken.step.value, host)
    return taken.broker_id


async def _until_taken(
    opened: OpenIds, thread: WorkThread, applicant: Applicant, session_s: float, stored: Stored
) -> Taken:
    """Asks until there is an answer. Another start that has taken the id has a session's time to come."""
    loop = asyncio.get_running_loop()
    said_at_s, awaited_since_s = loop.time(), None
    while True:
        retry_s, outcome = RETRY_S, None
        try:
            outcome = await in_thread(thread, partial(opened.mapping.take, applicant))
        except KafkaStorageError as e:
            log.warning("node.id is not set, and which one it is cannot be asked: %s", e)
            judgement = opened.judge()
            if isinstance(judgement, Fatal):
                raise KafkaStorageError(judgement.reason) from e
            retry_s = STORAGE_RETRY_S
        if isinstance(outcome, Taken):
            return outcome
        if isinstance(outcome, (SeveralMissing, Nameless)):
            raise GenerateBrokerIdError(_refusal(applicant, outcome, stored))
        now_s = loop.time()
        if isinstance(outcome, Awaited):
            awaited_since_s = now_s if awaited_since_s is None else awaited_since_s
            applicant = replace(applicant, insists=now_s - awaited_since_s > session_s)
        if now_s - said_at_s > SAY_AFTER_S:
            said_at_s = now_s
            log.warning("node.id is not set: waiting for %s", _awaited(outcome))
        await asyncio.sleep(retry_s)


def _awaited(outcome: Awaited | None) -> str:
    if outcome is None:
        return "a controller that can say which id is whose"
    return f"the broker that has taken id {outcome.broker_id} a moment ago"


def _refusal(applicant: Applicant, outcome: SeveralMissing | Nameless, stored: Stored) -> str:
    way_out = f"node.id, or `holdfast brokers ids set {applicant.host} ID`"
    if isinstance(outcome, SeveralMissing):
        return (
            f"node.id is not set, host {applicant.host} has no id, and brokers {_listed(outcome.missing)} are missing: "
            f"{keys.ADOPT_MISSING}=true takes the id of one, expected one at most. Start those that have their disks "
            f"first, or say which one this is: {way_out}"
        )
    unread = "; ".join(f"{path}: {why}" for path, why in stored.unread.items())
    return (
        f"node.id is not set, host {applicant.host} has no id that is free, and what log directories say cannot be "
        f"read: {unread}. Bring them back, take them out of log.dirs, or say which broker this is: {way_out}"
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
