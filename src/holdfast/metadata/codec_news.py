"""What brokers are told of SCRAM users and quotas: the records that make them, or that make what they were what they
are. It travels in UpdateMetadata, as one field of bytes each.

    version 1 | count | for each record: its length | the record        all numbers but the first unsigned varints

No bytes at all: nothing is said of them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.codec_fields import Reader, put_uvarint
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.metadata.records import (
    ClientQuotaRecord,
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    UserScramCredentialRecord,
)
from holdfast.model.errors import CorruptRecordError
from holdfast.security.quota_entities import entity_order

_VERSION: Final = 1


def encode_news(records: Iterable[MetadataRecord]) -> bytes:
    """The field."""
    encoded = [encode_record(record) for record in records]
    out = bytearray((_VERSION,))
    put_uvarint(out, len(encoded))
    for each in encoded:
        put_uvarint(out, len(each))
        out += each
    return bytes(out)


def decode_news(data: bytes) -> list[MetadataRecord]:
    """The records of a field. CorruptRecordError, which shows nothing of it."""
    reader = Reader(data)
    try:
        version = reader.take(1)[0]
        if version != _VERSION:
            raise CorruptRecordError(f"News of version {version}: expected {_VERSION}")
        records = [decode_record(reader.take(reader.uvarint())) for _ in range(reader.uvarint())]
    except (IndexError, ValueError) as e:
        raise CorruptRecordError(f"News cannot be read: {type(e).__name__}") from None
    if reader.pos != len(data):
        raise CorruptRecordError(f"News end at byte {reader.pos} of {len(data)}")
    return records


def changed_users(image: ClusterImage, delta: ClusterDelta) -> bytes:
    """The news of a change; ``image`` is the one after it, or a later one."""
    if not (delta.changed_users or delta.secret_changed):
        return b""
    return encode_news(_changed_users(image, delta))


def _changed_users(image: ClusterImage, delta: ClusterDelta) -> Iterator[MetadataRecord]:
    if delta.secret_changed:
        yield ScramSecretRecord(secret=image.users.secret)
    for name, mechanism in sorted(delta.changed_users):
        credential = image.users.credentials.get((name, mechanism))
        if credential is None:
            yield RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        else:
            yield UserScramCredentialRecord(name=name, mechanism=mechanism, credential=credential)


def changed_quotas(image: ClusterImage, delta: ClusterDelta) -> bytes:
    """Likewise."""
    if not delta.changed_quotas:
        return b""
    return encode_news(_changed_quotas(image, delta))


def _changed_quotas(image: ClusterImage, delta: ClusterDelta) -> Iterator[MetadataRecord]:
    for entity in sorted(delta.changed_quotas, key=entity_order):
        had, has = delta.before.quotas.of(entity), image.quotas.of(entity)
        for key in sorted({*had, *has}):
            yield ClientQuotaRecord(entity=entity, key=key, value=has.get(key))
