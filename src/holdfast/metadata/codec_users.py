"""Records of SCRAM users and quotas as bytes: UserScramCredentialRecord (11), RemoveUserScramCredentialRecord (22),
ClientQuotaRecord (14); and ScramSecretRecord, which is ours."""

from math import isfinite
from typing import Final

from holdfast.metadata.codec_fields import F64, I8, I32, Reader, put_bytes, put_head, put_string, put_uvarint
from holdfast.metadata.records import (
    ClientQuotaRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    UserScramCredentialRecord,
)
from holdfast.model.errors import InvalidRequestError
from holdfast.security.quota_entities import entity_of
from holdfast.security.scram_credential import ScramCredential, ScramMechanism

SECRET_KEY: Final = 20_001


def put_scram(out: bytearray, r: UserScramCredentialRecord) -> None:
    """Key 11."""
    put_head(out, 11, 0)
    put_string(out, r.name)
    out += I8.pack(r.mechanism)
    put_bytes(out, r.credential.salt)
    put_bytes(out, r.credential.stored_key)
    put_bytes(out, r.credential.server_key)
    out += I32.pack(r.credential.iterations)
    out.append(0)


def get_scram(r: Reader) -> UserScramCredentialRecord:
    """Likewise."""
    name, mechanism = r.string(), ScramMechanism(r.number(I8))
    credential = ScramCredential(salt=r.bytes(), stored_key=r.bytes(), server_key=r.bytes(), iterations=r.number(I32))
    r.tags()
    return UserScramCredentialRecord(name=name, mechanism=mechanism, credential=credential)


def put_remove_scram(out: bytearray, r: RemoveUserScramCredentialRecord) -> None:
    """Key 22."""
    put_head(out, 22, 0)
    put_string(out, r.name)
    out += I8.pack(r.mechanism)
    out.append(0)


def get_remove_scram(r: Reader) -> RemoveUserScramCredentialRecord:
    """Likewise."""
    record = RemoveUserScramCredentialRecord(name=r.string(), mechanism=ScramMechanism(r.number(I8)))
    r.tags()
    return record


def put_quota(out: bytearray, r: ClientQuotaRecord) -> None:
    """Key 14."""
    put_head(out, 14, 0)
    put_uvarint(out, len(r.entity) + 1)
    for kind, name in r.entity:
        put_string(out, kind)
        put_string(out, name)
        out.append(0)
    put_string(out, r.key)
    out += F64.pack(0.0 if r.value is None else r.value)
    out.append(r.value is None)
    out.append(0)


def get_quota(r: Reader) -> ClientQuotaRecord:
    """Likewise. An entity of a kind that nobody knows cannot be read: it might be one that limits."""
    named = []
    for _ in range(max(0, r.uvarint() - 1)):
        named.append((r.string(), r.nullable_string()))
        r.tags()
    key, value, removed = r.string(), r.number(F64), r.take(1) != b"\0"
    r.tags()
    if not isfinite(value):
        raise ValueError(f"quota {key} is {value}: expected a finite number")
    try:
        entity = entity_of(named)
    except InvalidRequestError as e:
        raise ValueError(str(e)) from e
    return ClientQuotaRecord(entity=entity, key=key, value=None if removed else value)


def put_secret(out: bytearray, r: ScramSecretRecord) -> None:
    """A key far outside Kafka's range."""
    put_head(out, SECRET_KEY, 0)
    put_bytes(out, r.secret)
    out.append(0)


def get_secret(r: Reader) -> ScramSecretRecord:
    """Likewise."""
    record = ScramSecretRecord(secret=r.bytes())
    r.tags()
    return record
