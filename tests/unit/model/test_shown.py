"""What strangers choose is shown in lines of the log, and may not make them long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.shown import MOST_SHOWN, cut, shown
from holdfast.security.plain import PlainServer
from holdfast.security.principal_rules import PrincipalRules, RuleError
from holdfast.security.sasl_mechanism import Challenge, Refused
from holdfast.security.sasl_server import SaslListener, SaslServer
from holdfast.security.scram_credential import ScramMechanism
from holdfast.security.scram_forms import CredentialForms
from holdfast.security.scram_server import ScramServer

LONG = "\U000e0001" * 16_000


@pytest.mark.parametrize("text", ["", "alice", "a" * MOST_SHOWN, "l\u00e9a '\n"])
def test_what_is_short_is_shown_as_it_is(text: str) -> None:
    assert cut(text) == text
    assert shown(text) == repr(text)


def test_what_is_long_is_cut_and_its_length_told() -> None:
    assert cut("a" * 256) == "a" * 255 + "... (256 characters)"
    assert shown("a" * 256) == "'" + "a" * 254 + "... (256 characters)"
    assert shown(LONG[:100]).endswith("... (100 characters)"), "escapes count"
    assert len(shown(LONG)) < 300
    assert "\n" not in shown("a\n" * 1000)


def plain(name: str) -> Refused:
    step = PlainServer({}).answer(b"\0%s\0x" % name.encode(), 0)
    assert isinstance(step, Refused)
    return step


def scram(name: str) -> Refused:
    server = ScramServer(ScramMechanism.SCRAM_SHA_256, lambda _: None, b"s", "ours", CredentialForms())
    step = server.answer(b"n,,n=%s,r=theirs" % name.encode(), 0)
    assert isinstance(step, Challenge)
    nonce = step.token.split(b",")[0]
    step = server.answer(b"c=biws,%s,p=%s" % (nonce, b"A" * 43 + b"="), 0)
    assert isinstance(step, Refused)
    return step


@pytest.mark.parametrize("mechanism", [plain, scram])
def test_a_failed_login_shows_so_much_of_a_name(mechanism: Callable[[str], Refused]) -> None:
    assert mechanism("nobody").reason == "user 'nobody': unknown, or another password"
    reason = mechanism(LONG[:2000]).reason
    assert len(reason) < 350 and reason.endswith("... (2000 characters): unknown, or another password")


def test_so_does_a_mechanism_that_is_not_there() -> None:
    why = SaslServer(SaslListener({"PLAIN": lambda: PlainServer({})}, {})).handshake(LONG, 0)
    assert why is not None and len(why.why) < 150


def test_so_does_the_subject_of_a_certificate() -> None:
    with pytest.raises(RuleError) as caught:
        PrincipalRules("RULE:^nobody$/x/").name("CN=" + "a" * 60_000)
    assert len(str(caught.value)) < 400
