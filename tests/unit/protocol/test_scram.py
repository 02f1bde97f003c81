"""The exchange of RFC 7677, and what a client must not believe."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from holdfast.protocol.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramClient, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    ours = client()
    assert ours.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert ours.final(CHALLENGE) == FINAL
    ours.check(SIGNED)
    ours.check(SIGNED + b",x=an extension")


def test_sha_512_and_a_name_with_signs_of_its_own() -> None:
    ours = ScramClient("SCRAM-SHA-512", "a=b,c", "pässword", "N")
    assert ours.first() == b"n,,n=a=3Db=2Cc,r=N"
    challenge = b"r=NM,s=c2FsdA==,i=5000"
    final = ours.final(challenge)
    without, _, proof = final.rpartition(b",p=")
    salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), b"salt", 5000)
    spoken = b"n=a=3Db=2Cc,r=N," + challenge + b"," + without
    key = hmac.digest(salted, b"Client Key", "sha512")
    mask = hmac.digest(hashlib.sha512(key).digest(), spoken, "sha512")
    assert bytes(a ^ b for a, b in zip(mask, base64.b64decode(proof), strict=True)) == key
    ours.check(b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), spoken, "sha512")))


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (CHALLENGE.replace(b"r=rO", b"r=xx"), "nonce does not go on"),
        (b"r=" + NONCE.encode() + b",s=c2FsdA==,i=4096", "nonce does not go on"),
        (CHALLENGE.replace(b"i=4096", b"i=4095"), f"asks for 4095 iterations: expected {LEAST_ITERATIONS} to"),
        (CHALLENGE.replace(b"i=4096", b"i=1000001"), f"expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}"),
        (CHALLENGE.replace(b"i=4096", b"i=many"), "asks for many iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=" + b"9" * 5000), "asks for 99999999999999999999 iterations"),
        (CHALLENGE.replace(b"s=W", b"s=*"), "salt is no base64"),
        (b"m=mandatory," + CHALLENGE, "has 'm=': expected r="),
        (b"r=" + NONCE.encode() + b"x", "ends early: expected r, s, i"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_challenge_that_cannot_be_trusted_gets_no_proof(challenge: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        client().final(challenge)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SIGNED.replace(b"6r", b"7r"), "signature is wrong"),
        (b"v=", "signature is wrong"),
        ("v=ä".encode(), "signature is wrong"),
        (b"e=invalid-proof", "the server says: invalid-proof"),
        (b"", "has '': expected v="),
    ],
)
def test_a_server_that_does_not_know_the_password_is_not_believed(answer: bytes, words: str) -> None:
    ours = client()
    ours.final(CHALLENGE)
    with pytest.raises(ScramError, match=words):
        ours.check(answer)


def test_a_signature_before_the_proof_is_none() -> None:
    with pytest.raises(ScramError, match="signature is wrong"):
        client().check(b"v=")
