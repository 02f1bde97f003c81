"""security/scram_credential.py: keys from a salted password, and that none is shown."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from holdfast.security.scram_credential import MECHANISMS, ScramCredential, ScramMechanism


def test_the_mechanisms_have_kafkas_numbers_and_sasls_names() -> None:
    assert {name: int(mechanism) for name, mechanism in MECHANISMS.items()} == {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


def test_the_keys_are_those_of_rfc_7677() -> None:
    """Its example: user "user", password "pencil"; the signature of the server is in the RFC."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    credential = ScramCredential.of_salted(ScramMechanism.SCRAM_SHA_256, salt, salted, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    spoken = (f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}").encode()
    signature = hmac.digest(credential.server_key, spoken, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(proof, hmac.digest(credential.stored_key, spoken, "sha256"), strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_no_key_is_shown(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.of_salted(mechanism, b"salt", b"x" * 32, 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert len(credential.stored_key) == len(credential.server_key) == (32 if mechanism == 1 else 64)
