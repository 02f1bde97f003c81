"""Users and quotas of an image: what records change, what a snapshot has, what is listed."""

from __future__ import annotations

import pytest

from holdfast.metadata import records as rec
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.listing import listing
from holdfast.model.errors import MetadataError
from holdfast.security.quota_entities import QuotaEntity
from holdfast.security.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
USER: QuotaEntity = (("user", "alice"),)
BOTH: QuotaEntity = (("user", None), ("client-id", "c d"))


def user(name: str, mechanism: ScramMechanism, salt: bytes = b"salt") -> rec.UserScramCredentialRecord:
    credential = ScramCredential(salt, b"stored", b"server", 4096)
    return rec.UserScramCredentialRecord(name=name, mechanism=mechanism, credential=credential)


def image_of(*records: rec.MetadataRecord) -> ClusterImage:
    return ClusterImage.empty("c").apply(records, 0)[0]


def test_users_come_and_go() -> None:
    image, delta = ClusterImage.empty("c").apply([user("bob", SHA_512), user("alice", SHA_256)], 0)
    assert image.users.names() == ["alice", "bob"]
    assert set(image.users.of("bob")) == {SHA_512}
    assert delta.changed_users == {("bob", SHA_512), ("alice", SHA_256)}
    assert not delta.empty
    gone, delta = image.apply([rec.RemoveUserScramCredentialRecord(name="bob", mechanism=SHA_512)], 2)
    assert gone.users.names() == ["alice"]
    assert delta.changed_users == {("bob", SHA_512)}
    with pytest.raises(MetadataError, match="removes SCRAM-SHA-512 of user 'bob', who has none"):
        gone.apply([rec.RemoveUserScramCredentialRecord(name="bob", mechanism=SHA_512)], 3)


def test_the_secret_is_told_when_it_changes() -> None:
    image, delta = ClusterImage.empty("c").apply([rec.ScramSecretRecord(secret=b"s" * 32)], 0)
    assert delta.secret_changed
    assert not delta.empty
    assert "sss" not in repr(image)
    assert not image.apply([user("a", SHA_256)], 1)[1].secret_changed


def test_quotas_come_and_go() -> None:
    records = [rec.ClientQuotaRecord(entity=BOTH, key=key, value=1.5) for key in ("x", "y")]
    image, delta = ClusterImage.empty("c").apply(records, 0)
    assert dict(image.quotas.of(BOTH)) == {"x": 1.5, "y": 1.5}
    assert delta.changed_quotas == {BOTH}
    assert image.quotas.users_with_clients() == {None}
    none, delta = image.apply([rec.ClientQuotaRecord(entity=BOTH, key=key, value=None) for key in "xyz"], 2)
    assert len(none.quotas) == 0
    assert not delta.empty


def test_a_snapshot_is_the_same() -> None:
    image = image_of(
        rec.ScramSecretRecord(secret=b"s"), user("b", SHA_256), user("a", SHA_512), user("a", SHA_256),
        rec.ClientQuotaRecord(entity=BOTH, key="x", value=1.0), rec.ClientQuotaRecord(entity=USER, key="x", value=2.0),
    )  # fmt: skip
    records = list(image.to_records())
    assert ClusterImage.empty("c").apply(records, image.next_offset - len(records))[0] == image


def test_a_listing_says_what_differs_and_no_key() -> None:
    secret = rec.ScramSecretRecord(secret=b"secret" * 5)
    quota = rec.ClientQuotaRecord(entity=BOTH, key="request_percentage", value=0.5)
    said = listing(image_of(secret, user("a b", SHA_256), quota))
    assert said["quota user <default> client-id c%20d request_percentage"] == {"value": "0.5"}
    name = "scram-user a%20b SCRAM-SHA-256"
    assert said[name]["iterations"] == "4096"
    other = ScramCredential(b"salt", b"stored", b"another", 4096)
    changed = rec.UserScramCredentialRecord(name="a b", mechanism=SHA_256, credential=other)
    assert listing(image_of(secret, changed))[name]["digest"] != said[name]["digest"]
    text = str(said)
    assert not [key for key in ("secretsecret", "stored", "server") if key in text]


def test_without_a_secret_nothing_is_said_of_keys() -> None:
    """Who knows the salt, which everybody is told, could try passwords by it."""
    other = rec.UserScramCredentialRecord(
        name="a", mechanism=SHA_256, credential=ScramCredential(b"salt", b"x", b"y", 4096)
    )
    assert listing(image_of(user("a", SHA_256))) == listing(image_of(other))
