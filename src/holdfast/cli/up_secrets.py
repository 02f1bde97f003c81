"""What ``holdfast up --secure`` keeps in DIR for its brokers and gives to clients: names of files, and what they say.

    DIR/secure/                      0700: certificates and keys (up_certificates.py), users.json
    DIR/secure/users.json            {"admin": password, "client": password}: made once, and read again
    DIR/client.properties            the user client with SCRAM-SHA-512, as Java's clients and ours take it
    DIR/client-mtls.properties       the same user by its certificate
    DIR/admin.properties             the user admin, who may everything: for --command-config
    DIR/librdkafka.properties        client.properties with librdkafka's names
    DIR/librdkafka-mtls.properties   and its certificate

Every file is 0600. Owns these names and texts; up_secure.py has what brokers are told.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.cli.up_certificates import write_secret
from holdfast.cli.up_secure import ADMIN, CA_CERTIFICATE, CLIENT, CONSOLE_FILE, FOLDER, MECHANISM, USERS

USERS_FILE: Final = "users.json"
PASSWORD_BYTES: Final = 24
"""Of chance in a password: more than anybody can try, at 4,096 iterations or at one."""
JAVAS = {"client.properties": CLIENT, "admin.properties": ADMIN}
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAVAS_HEAD: Final = (
    "Of `holdfast up --secure`, written anew at each start. For clients in Java, Spark and --command-config."
)
CONSOLES_HEAD: Final = "Of `holdfast up --secure`: how the console speaks to brokers; who opens it logs in."
LIBRDKAFKAS_HEAD: Final = (
    "Of `holdfast up --secure`, written anew at each start. For librdkafka, whose names these are."
)


class SecretsError(Exception):
    """A file of the directory cannot be used; the message names it and what was expected."""


def users_of(folder: Path) -> dict[str, str]:
    """Password by user, made at the first time. SecretsError: the file is there and is none of ours."""
    path = folder / USERS_FILE
    found: dict[str, str] = {}
    if path.exists():
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            found = {str(name): password for name, password in read.items() if isinstance(password, str) and password}
        except (ValueError, AttributeError):
            raise SecretsError(f"{path}: expected a JSON object of passwords by user") from None
    missing = [name for name in USERS if name not in found]
    if missing:
        found |= {name: secrets.token_urlsafe(PASSWORD_BYTES) for name in missing}
        write_secret(path, json.dumps(found) + "\n")
    return found


def write_client_files(
    data_dir: Path, passwords: Mapping[str, str], *, by_scram: Sequence[str], by_certificate: Sequence[str]
) -> None:
    """``by_scram``, ``by_certificate``: HOST:PORT of the brokers' listeners for each."""
    folder = data_dir / FOLDER
    for name, user in JAVAS.items():
        values = javas_scram(folder, by_scram, user, passwords[user])
        write_secret(data_dir / name, _text(JAVAS_HEAD, _escaped(values)))
    asks = {"security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM, **_javas_trust(folder)}
    write_secret(folder / CONSOLE_FILE, _text(CONSOLES_HEAD, _escaped(asks)))
    values = javas_certificate(folder, by_certificate, CLIENT)
    write_secret(data_dir / "client-mtls.properties", _text(JAVAS_HEAD, _escaped(values)))
    values = librdkafkas_scram(folder, by_scram, CLIENT, passwords[CLIENT])
    write_secret(data_dir / "librdkafka.properties", _text(LIBRDKAFKAS_HEAD, values))
    values = librdkafkas_certificate(folder, by_certificate, CLIENT)
    write_secret(data_dir / "librdkafka-mtls.properties", _text(LIBRDKAFKAS_HEAD, values))


def javas_scram(folder: Path, bootstrap: Sequence[str], user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
        **_javas_trust(folder),
    }


def javas_certificate(folder: Path, bootstrap: Sequence[str], user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / f"{user}.pem"),
        **_javas_trust(folder),
    }


def librdkafkas_scram(folder: Path, bootstrap: Sequence[str], user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(folder / CA_CERTIFICATE),
    }


def librdkafkas_certificate(folder: Path, bootstrap: Sequence[str], user: str) -> dict[str, str]:
    path = str(folder / f"{user}.pem")
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / CA_CERTIFICATE),
        "ssl.certificate.location": path,
        "ssl.key.location": path,
    }


def _javas_trust(folder: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / CA_CERTIFICATE)}


def _escaped(values: Mapping[str, str]) -> dict[str, str]:
    """As properties files of Java are read."""
    return {key: value.replace("\\", "\\\\") for key, value in values.items()}


def _text(head: str, values: Mapping[str, str]) -> str:
    return "".join((f"# {head}\n", *(f"{key}={value}\n" for key, value in values.items())))
