"""The events that a broker's log names: a bounded list, each with what it says and what a person does then.

A line of the log that tells one has its name and these fields (broker/log_format.py); a line without a name is for
people who look for a reason. Decisions of the controller are told by the controller, once they are durable
(controller/decision_lines.py); what happens to a directory by the broker that has it. docs/events.md is made from this
table.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

FieldValue: TypeAlias = str | int | float | bool | tuple[int, ...] | tuple[str, ...] | None

KEY: Final = "holdfast_event"
"""The attribute of a logging record that has the Told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """``says``: what has happened; ``fields``: the names that a line may have; ``then``: what a person does."""

    name: str
    says: str
    fields: tuple[str, ...]
    then: str


def _kind(name: str, fields: str, says: str, then: str) -> EventKind:
    return EventKind(name=name, says=says, fields=tuple(fields.split()), then=then)


_NOTHING: Final = "Nothing."
_PARTITION: Final = "topic partition partitions"
"""``partition`` of a line about one, ``partitions`` (a number) of a line about many."""


class LogEvent(Enum):
    """Every event there is; ``value`` is what is known of it."""

    # -- topics ------------------------------------------------------------------------------------------------

    TOPIC_CREATED = _kind(
        "topic.created", "topic topic_id partitions replication_factor leaderless topics",
        "A topic is there; `topics` of a line about many.", _NOTHING,
    )  # fmt: skip
    TOPIC_DELETED = _kind(
        "topic.deleted", "topic topic_id partitions topics", "A topic is gone, and its records with it.",
        "If nobody meant it: its files are removed after `file.delete.delay.ms`; copy them before.",
    )  # fmt: skip
    TOPIC_PARTITIONS_ADDED = _kind(
        "topic.partitions_added", "topic partitions added topics", "A topic has more partitions.",
        "Keys may belong to other partitions than before: consumers that count on it must know.",
    )  # fmt: skip

    # -- partitions --------------------------------------------------------------------------------------------

    LEADER_ELECTED = _kind(
        "leader.elected", f"{_PARTITION} broker before epoch clean",
        "Another replica leads a partition. `clean` false (a warning): it was not in sync, records may be lost.",
        "Nothing where it is clean. Where it is not, the page on a partition without a leader says what to compare.",
    )  # fmt: skip
    LEADER_LOST = _kind(
        "leader.lost", f"{_PARTITION} broker replicas isr eligible",
        "A partition has no leader: nobody can read or write it. `broker` led it last.",
        "Bring back the broker or the directory that has its records ([no leader](no-leader.md)).",
    )  # fmt: skip
    LEADER_RECOVERED = _kind(
        "leader.recovered", f"{_PARTITION} broker",
        "A leader that was elected without all records has ended its recovery.", _NOTHING,
    )  # fmt: skip
    ISR_SHRUNK = _kind(
        "isr.shrunk", f"{_PARTITION} broker isr",
        "A replica is not in sync any more: its broker or directory failed, or it is too slow.",
        "If `isr.expanded` does not follow in minutes: look at the directory and the network of `broker`.",
    )  # fmt: skip
    ISR_EXPANDED = _kind(
        "isr.expanded", f"{_PARTITION} broker isr", "A replica has caught up and counts again.", _NOTHING
    )
    REASSIGNMENT_STARTED = _kind(
        "reassignment.started", f"{_PARTITION} replicas before",
        "A partition is to be on other brokers, or on others than it was to be on.",
        "`holdfast reassign list` shows how far it is.",
    )  # fmt: skip
    REASSIGNMENT_FINISHED = _kind(
        "reassignment.finished", f"{_PARTITION} replicas before", "It is there; the old replicas go.", _NOTHING
    )
    REASSIGNMENT_CANCELLED = _kind(
        "reassignment.cancelled", f"{_PARTITION} replicas", "It stays where it was; what had been copied goes.",
        _NOTHING,
    )  # fmt: skip

    # -- brokers -----------------------------------------------------------------------------------------------

    BROKER_REGISTERED = _kind(
        "broker.registered", "broker epoch log_dirs rack leaders_moved leaderless isr_left",
        "A broker has started; it serves after `broker.unfenced`.",
        "If it comes again and again without anybody's doing: the log of that broker says why it ends.",
    )  # fmt: skip
    BROKER_UNFENCED = _kind("broker.unfenced", "broker", "A broker takes part: it may lead.", _NOTHING)
    BROKER_FENCED = _kind(
        "broker.fenced", "broker leaders_moved leaderless isr_left",
        "A broker is dead as far as the controller knows. The counts are of its partitions: those that others lead "
        "now, those that nobody leads, those whose ISR it left.",
        "Without a `broker.shutting_down` before it: find out why the process ended, start it again.",
    )  # fmt: skip
    BROKER_SHUTTING_DOWN = _kind(
        "broker.shutting_down", "broker leaders_moved leaderless isr_left",
        "A broker was told to stop; others lead what it led.", _NOTHING,
    )  # fmt: skip
    BROKER_UNREGISTERED = _kind("broker.unregistered", "broker", "A person has removed a broker for good.", _NOTHING)
    BROKER_DIRS_CHANGED = _kind(
        "broker.dirs_changed", "broker log_dirs gone back cordoned",
        "A broker has other directories than before (`gone`, `back`: their ids), or others are cordoned; `log_dirs` "
        "and `cordoned` say how many.",
        "The log of that broker has the paths.",
    )  # fmt: skip
    BROKER_STARTED = _kind("broker.started", "broker", "This broker serves.", _NOTHING)
    BROKER_STOPPED = _kind("broker.stopped", "broker exit_code", "This broker has stopped in order.", _NOTHING)
    BROKER_FAILED = _kind(
        "broker.failed", "reason", "This broker cannot start, or cannot go on; it ends.",
        "`reason` says what is missing. The others go on without it.",
    )  # fmt: skip

    # -- the cluster -------------------------------------------------------------------------------------------

    CONTROLLER_CLAIMED = _kind("controller.claimed", "broker epoch", "This broker is the controller.", _NOTHING)
    CONTROLLER_RESIGNED = _kind(
        "controller.resigned", "broker epoch reason",
        "This broker is the controller no more. One that was killed leaves no such line.",
        "If it comes often: the disks of the metadata or the ensemble are slow; `reason` says which.",
    )  # fmt: skip
    CONFIG_CHANGED = _kind(
        "config.changed", "resource name changes resources",
        "A topic, a broker or the default of all brokers is configured anew. Passwords are hidden.", _NOTHING,
    )  # fmt: skip
    FEATURE_CHANGED = _kind("feature.changed", "feature level before", "A feature is in force at a level.", _NOTHING)
    PRODUCER_IDS_ALLOCATED = _kind(
        "producer_ids.allocated", "first count", "A broker has got numbers for producers.", _NOTHING
    )
    METADATA_COPY_OFFLINE = _kind(
        "metadata_copy.offline", "dir reason left",
        "A copy of the metadata cannot be used; decisions go on in those that are `left`.",
        "Repair or replace its disk before the other one dies ([metadata](metadata.md)).",
    )  # fmt: skip
    METADATA_COPY_ONLINE = _kind("metadata_copy.online", "dir", "A copy of the metadata is good again.", _NOTHING)

    # -- rights ------------------------------------------------------------------------------------------------

    ACCESS_DENIED = _kind(
        "access.denied", "principal operation host resource request rule count",
        "Somebody was refused what they had asked for; `count` of a line about how many were left out.",
        "Nothing where it is meant. Else add an access control list ([security](decisions/0057-acls.md)); `rule` says "
        "which one forbids it, or that none allows it.",
    )  # fmt: skip
    ACCESS_ALLOWED = _kind(
        "access.allowed", "principal operation host resource request rule count",
        "Somebody was let do what they had asked for; told with `HOLDFAST_LOG_LEVEL=DEBUG` alone.", _NOTHING,
    )  # fmt: skip

    # -- directories -------------------------------------------------------------------------------------------

    DIR_OFFLINE = _kind(
        "dir.offline", "dir reason",
        "A log directory is not used any more: its disk has failed, or a person took it offline.",
        "`holdfast log-dirs describe` shows what was on it. Repair or replace the disk, then `holdfast log-dirs "
        "online` ([log directories](log-dirs.md)).",
    )  # fmt: skip
    DIR_REPLICAS_OFFLINE = _kind(
        "dir.replicas_offline", "dir replicas led",
        "How many replicas went with a directory, and how many of them led here. Others are elected.",
        "With `leader.lost` on the controller beside it: what had one replica only cannot be read.",
    )  # fmt: skip
    DIR_ONLINE = _kind("dir.online", "dir", "A directory that was offline is used again.", _NOTHING)
    DIR_ADDED = _kind("dir.added", "dir", "The broker has one more directory.", _NOTHING)
    DIR_REMOVED = _kind("dir.removed", "dir", "The broker has one directory less.", _NOTHING)
    DIR_DEGRADED = _kind(
        "dir.degraded", "dir reason", "A directory answers, too slowly: others lead what is on it.",
        "Look at the disk (SMART, the kernel's log, what else uses it); `dir.recovered` ends it.",
    )  # fmt: skip
    DIR_SILENT = _kind(
        "dir.silent", "dir reason", "A directory does not answer at all: a disk or a mount that hangs.",
        "As of `dir.degraded`. Nothing else of the broker waits for it; the broker can be stopped all the same.",
    )  # fmt: skip
    DIR_RECOVERED = _kind("dir.recovered", "dir", "A slow or silent directory answers as usual.", _NOTHING)
    DIR_FULL = _kind(
        "dir.full", "dir reason", "No space left: its partitions take no writes, reads go on.",
        "Make room: shorter retention, `holdfast log-dirs move`, a larger disk. `dir.has_room` ends it.",
    )  # fmt: skip
    DIR_HAS_ROOM = _kind("dir.has_room", "dir", "A full directory takes writes again.", _NOTHING)
    DIR_CORDONED = _kind("dir.cordoned", "dir", "A directory takes no new replicas, as a person wished.", _NOTHING)
    DIR_UNCORDONED = _kind("dir.uncordoned", "dir", "A directory takes new replicas again.", _NOTHING)
    REPLICA_FAILED = _kind(
        "replica.failed", "topic partition dir reason",
        "One replica cannot be used though its directory can: its files are damaged.",
        "It is made anew from the others where there are some; if it comes again, the disk loses data.",
    )  # fmt: skip
    MOVE_STARTED = _kind(
        "move.started", "topic partition dir before", "A replica is copied to another directory (`dir`).",
        "`holdfast log-dirs describe` shows how far it is.",
    )  # fmt: skip
    MOVE_FINISHED = _kind(
        "move.finished", "topic partition dir before bytes", "It is there, and its old copy goes.", _NOTHING
    )
    MOVE_GIVEN_UP = _kind(
        "move.given_up", "topic partition dir before reason", "It stays where it was.",
        "Ask for it again when `reason` is over.",
    )  # fmt: skip

    # -- certificates ------------------------------------------------------------------------------------------

    CERTIFICATE_RENEWED = _kind(
        "certificate.renewed", "listener subject",
        "A listener shows another certificate, or believes others: connections from now on, not those that are open.",
        _NOTHING,
    )  # fmt: skip
    CERTIFICATE_REFUSED = _kind(
        "certificate.refused", "listener reason",
        "The files of a listener's certificate have changed and cannot be used, or others would not believe what is in "
        "them: it goes on with the ones before.",
        "Put what `reason` expects into the files, before the certificate in force is over.",
    )  # fmt: skip

    # -- coordinators ------------------------------------------------------------------------------------------

    COORDINATOR_LOADED = _kind(
        "coordinator.loaded", "topic partition bytes seconds",
        "This broker coordinates the groups (`__consumer_offsets`) or transactions (`__transaction_state`) of a "
        "partition, and has read them.",
        _NOTHING,
    )  # fmt: skip
    COORDINATOR_LEFT = _kind(
        "coordinator.left", "topic partition", "This broker does not coordinate those of a partition any more.",
        _NOTHING,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """What a line says for machines."""

    event: LogEvent
    fields: Mapping[str, FieldValue] = field(default_factory=dict)


def told(event: LogEvent, **fields: FieldValue) -> dict[str, Told]:
    """The ``extra`` of a logging call that tells an event."""
    return {KEY: Told(event, fields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """An event that is to be told, by somebody who may not log: ``message`` is for people."""

    event: LogEvent
    message: str
    fields: Mapping[str, FieldValue]
    level: int = logging.INFO

    def log(self, to: logging.Logger) -> None:
        """Tell it."""
        to.log(self.level, "%s", self.message, extra={KEY: Told(self.event, self.fields)})
