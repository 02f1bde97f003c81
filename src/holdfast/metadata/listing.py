"""An image as a list of named things, one a line: what ``holdfast metadata dump`` writes and ``diff`` compares.

    broker 1                       epoch=12 incarnation=... fenced=false ...
    partition orders 0             replicas=1,2,3 isr=1,2,3 leader=1 ...

Owns the names, their order, and both forms (text and JSON). Says all of an image: two images of one listing are equal,
but for the ids of access control entries.
Names and values have no blank: those of people are written with %XX, as in addresses.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from holdfast.metadata.image import BrokerImage, ClusterImage, PartitionImage
from holdfast.metadata.records import ResourceType
from holdfast.metadata.users_image import UsersImage
from holdfast.model.errors import MetadataError
from holdfast.security.quota_entities import QuotaEntity

HEADER: Final = "# holdfast metadata, version 1"
VERSION: Final = 1
Fields: TypeAlias = Mapping[str, str]
Listing: TypeAlias = dict[str, Fields]
"""Name -> its fields, in the order in which they are written."""
_SAFE: Final = "/:;,@+-_.~!$&'()*[]{}<>|^=?\"\\"
_ACL_SAFE: Final = "/:;,@+-_.~*="
_KINDS: Final = {int(ResourceType.TOPIC): "topic", int(ResourceType.BROKER): "broker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that two listings do not have alike; None: that one lacks it."""

    name: str
    left: Fields | None
    right: Fields | None


def listing(image: ClusterImage) -> Listing:
    """All of it."""
    return dict(_things(image))


def _things(image: ClusterImage) -> Iterator[tuple[str, Fields]]:
    yield "cluster", {"id": _word(image.cluster_id)}
    yield "log", {"end_offset": str(image.next_offset)}
    yield "controller", {"id": _number(image.controller_id), "epoch": str(image.controller_epoch)}
    yield "producer-ids", {"next": str(image.next_producer_id)}
    for name, level in sorted(image.features.items()):
        yield f"feature {_name(name)}", {"level": str(level)}
    for broker in sorted(image.brokers.values(), key=lambda each: each.id):
        yield f"broker {broker.id}", _broker(broker)
        for endpoint in broker.endpoints.listeners:
            said = {"at": _word(str(endpoint)), "protocol": endpoint.security_protocol.name}
            yield f"listener {broker.id} {_name(endpoint.name)}", said
    for topic in image.sorted_topics():
        yield f"topic {topic.name}", {"id": str(topic.topic_id)}
        for number, partition in topic.numbered():
            yield f"partition {topic.name} {number}", _partition(partition)
    for (kind, resource), values in sorted(image.configs.items()):
        for key, value in sorted(values.items()):
            of = f"{_KINDS.get(kind, str(kind))} {_name(resource) if resource else '<default>'}"
            yield f"config {of} {_name(key)}", {"value": _word(value)}
    yield from _acls(image)
    yield from _users(image.users)
    for entity in image.quotas:
        for key, limit in sorted(image.quotas.of(entity).items()):
            yield f"quota {_entity(entity)} {key}", {"value": repr(limit)}


def _users(users: UsersImage) -> Iterator[tuple[str, Fields]]:
    """Whether two images have the same users can be seen, and nothing that helps to be one: what is said of keys is
    made with the secret of the cluster, so that nobody can try passwords by it."""
    if users.secret:
        yield "scram-secret", {"digest": hashlib.sha256(users.secret).hexdigest()[:16]}
    for name, mechanism in sorted(users.credentials):
        credential = users.credentials[name, mechanism]
        keys = credential.salt + (credential.stored_key + credential.server_key if users.secret else b"")
        digest = hmac.digest(users.secret, keys, "sha256").hex()[:16]
        yield (
            f"scram-user {_name(name)} {mechanism.sasl_name}",
            {"iterations": str(credential.iterations), "digest": digest},
        )


def _entity(entity: QuotaEntity) -> str:
    return " ".join(f"{kind} {'<default>' if name is None else _name(name)}" for kind, name in entity)


def _acls(image: ClusterImage) -> Iterator[tuple[str, Fields]]:
    """Without the ids of their records, which are of no consequence and which not every store keeps."""
    found: dict[str, list[str]] = {}
    for acl in sorted(image.acls):
        resource, entry = acl.resource, acl.entry
        named = map(_acl_word, (resource.name, entry.principal, entry.host))
        name = f"{resource.kind.acl_name} {resource.pattern.log_name} {' '.join(named)} {entry.operation.acl_name}"
        found.setdefault(name, []).append(entry.permission.acl_name)
    for name, permissions in found.items():
        yield f"acl {name}", {"permission": _list(permissions)}


def _acl_word(text: str) -> str:
    word = quote(text, safe=_ACL_SAFE) or "''"
    return f"{word[:-1]}%3A" if word.endswith(":") else word  # a colon and a blank end the name of a thing


def _broker(broker: BrokerImage) -> Fields:
    return {
        "epoch": str(broker.epoch),
        "incarnation": str(broker.incarnation_id),
        "fenced": _flag(broker.fenced),
        "draining": _flag(broker.in_controlled_shutdown),
        "rack": "-" if broker.rack is None else f"'{_word(broker.rack)}'",
        "log_dirs": _list(broker.log_dirs),
        "cordoned": _list(broker.cordoned),
        "features": _list(tuple(f"{_name(name)}:{low}-{high}" for name, low, high in broker.features)),
        "listeners": _list(_word(endpoint.name) for endpoint in broker.endpoints.listeners),
        "inter_broker": _word(broker.endpoints.inter_broker),
        "control_plane": _word(broker.endpoints.control_plane),
    }


def _partition(partition: PartitionImage) -> Fields:
    return {
        "replicas": _list(partition.replicas),
        "isr": _list(partition.isr),
        "leader": _number(partition.leader),
        "leader_epoch": str(partition.leader_epoch),
        "partition_epoch": str(partition.partition_epoch),
        "adding": _list(partition.adding),
        "removing": _list(partition.removing),
        "elr": _list(partition.elr),
        "last_known_elr": _list(partition.last_known_elr),
        "recovery": partition.recovery_state.name.lower(),
        "created": str(partition.created),
        "directories": _list(partition.directories),
    }


def _name(text: str) -> str:
    """A part of a thing's name: never empty, and no sign of ours is in it."""
    return quote(text, safe="/,@+-_.~") or "''"


def _word(text: str) -> str:
    return quote(text, safe=_SAFE)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _list(values: Any) -> str:
    return ",".join(map(str, values)) or "-"


# -- forms -------------------------------------------------------------------------------------------------------------


def to_text(of: Listing) -> str:
    """A line a thing, after HEADER."""
    return "".join(f"{line}\n" for line in (HEADER, *(f"{name}: {shown(fields)}" for name, fields in of.items())))


def shown(fields: Fields) -> str:
    """The fields of a thing, in a line."""
    return " ".join(f"{key}={value}" for key, value in fields.items())


def to_json(of: Listing) -> str:
    """The same as one object: things by name, fields by name."""
    return json.dumps({"version": VERSION, "metadata": of}, indent=1)


def parse(where: str, text: str) -> Listing:
    """Either form. MetadataError names ``where`` and the line."""
    return _of_json(where, text) if text.lstrip().startswith("{") else _of_text(where, text)


def _of_text(where: str, text: str) -> Listing:
    lines = text.splitlines()
    if not lines or lines[0].strip() != HEADER:
        raise MetadataError(f"{where}: line 1 is {(lines or [''])[0][:60]!r}: expected {HEADER!r}")
    found: Listing = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        name, colon, rest = line.partition(": ")
        fields = dict(_pair(where, number, word) for word in rest.split())
        if not colon or not fields or name in found:
            raise MetadataError(
                f"{where}: line {number} is {line[:60]!r}: expected NAME: FIELD=VALUE ..., each name once"
            )
        found[name] = fields
    return found


def _pair(where: str, number: int, word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise MetadataError(f"{where}: line {number}: {word[:60]!r}: expected FIELD=VALUE")
    return key, value


def _of_json(where: str, text: str) -> Listing:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise MetadataError(f"{where} is no JSON: {e}") from e
    things = found.get("metadata") if isinstance(found, dict) and found.get("version") == VERSION else None
    if not isinstance(things, dict) or not all(
        isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values())
        for fields in things.values()
    ):
        raise MetadataError(f"{where}: expected what `holdfast metadata dump --json` writes, version {VERSION}")
    return things


# -- comparing ---------------------------------------------------------------------------------------------------------


def differences(left: Listing, right: Listing) -> list[Difference]:
    """What is not alike, in the order of ``left``; what only ``right`` has is at the end. Empty when they are equal."""
    names = [*left, *(name for name in right if name not in left)]
    return [
        Difference(name=name, left=left.get(name), right=right.get(name))
        for name in names
        if left.get(name) != right.get(name)
    ]


def to_json_difference(found: Sequence[Difference]) -> str:
    """What differs, by name: the fields on both sides, null on the one that has no such thing."""
    return json.dumps({"version": VERSION, "different": {d.name: [d.left, d.right] for d in found}}, indent=1)


def difference_lines(difference: Difference) -> Iterator[str]:
    """For a person: what one side alone has, or the fields in which they differ."""
    name, left, right = difference.name, difference.left, difference.right
    if left is None or right is None:
        side, fields = ("<", left) if right is None else (">", right)
        yield f"{side} {name}: {shown(fields or {})}"
        return
    for key in [*left, *(key for key in right if key not in left)]:
        if left.get(key) != right.get(key):
            yield f"! {name}: {key} is {left.get(key, 'missing')} < > {right.get(key, 'missing')}"
