"""What brokers of ``holdfast up --secure`` are told: listeners, certificates, who may everything.

    SASL_SSL   --port         clients that log in with a password (SCRAM-SHA-512)
    SSL        --port + 50    clients that log in by a certificate
    INTERNAL   --port + 200   the brokers among themselves, by their certificate; no client is told of it

Brokers are known to each other by certificates and not by a password, as passwords lie in the metadata that a broker
hears of from others. Values only: up_certificates.py makes the certificates, up_secrets.py the users' files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.model.listeners import LISTENERS

FOLDER: Final = "secure"
"""In the data directory; only its owner gets in."""
CA_CERTIFICATE, CA_KEY, BROKER_FILE = "ca.pem", "ca.key", "broker.pem"
CONSOLE_FILE: Final = "console.properties"
"""How the console speaks to brokers, without a user: who opens it logs in."""
ORGANISATION: Final = "holdfast"
ADMIN, CLIENT = "admin", "client"
USERS: Final = (ADMIN, CLIENT)
MECHANISM: Final = "SCRAM-SHA-512"
BY_PASSWORD, BY_CERTIFICATE = "SASL_SSL", "SSL"
"""Names of listeners, and their security protocols."""
BROKERS_PRINCIPAL: Final = f"User:CN=broker,O={ORGANISATION}"
MAPPING: Final = "RULE:^CN=([^,=]+)$/$1/,DEFAULT"
"""A user is the same one with a certificate as with a password: ``CN=client`` is ``User:client``. The certificate of
brokers has an organisation, too, so that no user has their name."""
EXTRA: Final = "--secure needs the package cryptography: pip install 'holdfast[secure]'"
STORE_TOO: Final = (
    "expected the embedded store with --secure: whoever reaches the ensemble could give himself users and rights there."
    " docs/security.md says how such a cluster is secured by hand"
)


def broker_values(data_dir: str) -> dict[str, str]:
    """Keys of each broker, beside its listeners."""
    folder = Path(data_dir) / FOLDER
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / BROKER_FILE),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / CA_CERTIFICATE),
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": MAPPING,
        "sasl.enabled.mechanisms": MECHANISM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"{BROKERS_PRINCIPAL};User:{ADMIN}",
        "metrics.host": "127.0.0.1",
    }


OWNED: Final = frozenset(broker_values(""))
"""Keys that nobody else sets in a cluster that is secured so."""


def is_secured(properties: Mapping[str, str]) -> bool:
    """Whether a broker's file is of a cluster that was secured so."""
    return properties.get(LISTENERS, "").upper().startswith(f"{BY_PASSWORD}://")
