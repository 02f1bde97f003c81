"""What is in force at a listener: whom certificates name, and which renewals are another party's."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.broker.tls_listener import InForce, check_successor, loaded, marks_of
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol
from tests.certificates import Authority, Certificate

AUTHORITY = Authority.make()


def in_force(certificate: Certificate, **more: str) -> InForce:
    given = {"ssl.keystore.key": certificate.key_pem, "ssl.keystore.certificate.chain": certificate.chain}
    keys = {f"listener.name.clients.ssl.{name.replace('_', '.')}": text for name, text in more.items()}
    return loaded(given | keys, "CLIENTS", SecurityProtocol.SSL)


def test_a_successor_is_the_same_party_unless_it_need_not_be() -> None:
    before = in_force(AUTHORITY.issue("broker"))
    check_successor(before, in_force(AUTHORITY.issue("broker")), "CLIENTS")
    check_successor(
        before, in_force(AUTHORITY.issue("broker", hosts=("localhost", "127.0.0.1", "::1", "b"))), "CLIENTS"
    )
    other, fewer = AUTHORITY.issue("other"), AUTHORITY.issue("broker", hosts=("localhost",))
    with pytest.raises(ConfigError, match=r"names CN=other: expected CN=broker, .*ssl\.allow\.dn\.changes=true"):
        check_successor(before, in_force(other), "CLIENTS")
    with pytest.raises(
        ConfigError, match=r"not for all hosts .* listener\.name\.clients\.ssl\.allow\.san\.changes=true"
    ):
        check_successor(before, in_force(fewer), "CLIENTS")
    check_successor(before, in_force(other, allow_dn_changes="true"), "CLIENTS")
    check_successor(before, in_force(fewer, allow_san_changes="true"), "CLIENTS")


def test_rules_that_cannot_be_read_name_their_key() -> None:
    with pytest.raises(ConfigError, match=r"'NOPE' of listener\.name\.clients\.ssl\.principal\.mapping\.rules: "):
        in_force(AUTHORITY.issue("broker"), principal_mapping_rules="NOPE")


def test_marks_tell_a_renewed_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    assert marks_of((str(path),)) == (None,)
    path.write_text("one")
    before = marks_of((str(path),))
    assert marks_of((str(path),)) == before != (None,)
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").replace(path)
    assert marks_of((str(path),)) != before
