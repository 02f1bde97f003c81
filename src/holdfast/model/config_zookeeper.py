"""Keys of a broker about the ZooKeeper ensemble that keeps its cluster's metadata.

Names, types and defaults are Kafka's where Kafka has the key (3.9). Kafka takes credentials from a JAAS file; here
they are keys. What they mean together is coordination/zookeeper_settings.py.
"""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, Form, make_key

_B, _S, _I, _LIST, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
_PORT = r"(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})"
_SERVER = rf"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):{_PORT}"
_ENSEMBLE = Form(pattern=rf"{_SERVER}(?:,{_SERVER})*(?:/[^/,\s]+)*", words="HOST:PORT[,HOST:PORT]...[/CHROOT]")
_TLS_IS_PYTHONS: Final = "the newest protocol and the strongest cipher that both sides speak are used"


def _inert(
    why: str, name: str, kind: ConfigType, default: str | None = None, *, refuse_others: bool = False
) -> ConfigKey:
    return make_key(name, kind, default, f"No effect: {why}.", inert=why, only_default=refuse_others)


ZOOKEEPER_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        "zookeeper.connect",
        _S,
        None,
        "The ZooKeeper ensemble for metadata.store=zookeeper, and the znode below which the cluster is; with another "
        "store it has no effect, nor has any other key zookeeper.*.",
        form=_ENSEMBLE,
    ),
    make_key(
        "zookeeper.session.timeout.ms",
        _I,
        18_000,
        "How long the ensemble waits for a broker that is silent before it takes it for dead. The ensemble may grant "
        "less or more: 2 to 20 of its ticks by default.",
        1,
    ),
    make_key(
        "zookeeper.connection.timeout.ms",
        _I,
        None,
        "How long a start waits for the first server that answers; zookeeper.session.timeout.ms if not given.",
        1,
    ),
    make_key("zookeeper.max.in.flight.requests", _I, 10, "The most requests that wait for an answer.", 1),
    make_key(
        "zookeeper.set.acl",
        _B,
        "false",
        "What is made from then on is for those with this broker's credentials alone, which all brokers have to share; "
        "others may read all but what is secret. What was there before: `holdfast metadata secure-znodes`.",
    ),
    make_key(
        "zookeeper.auth.digest",
        _PASSWORD,
        None,
        "Credentials of ZooKeeper's scheme digest, USER:PASSWORD.",
        ours=True,
    ),
    make_key(
        "zookeeper.sasl.mechanism",
        _S,
        None,
        "How brokers authenticate to the ensemble by SASL; not at all if not given.",
        choices=("DIGEST-MD5", "GSSAPI"),
        ours=True,
    ),
    make_key("zookeeper.sasl.username", _S, None, "For DIGEST-MD5.", ours=True),
    make_key("zookeeper.sasl.password", _PASSWORD, None, "For DIGEST-MD5.", ours=True),
    make_key(
        "zookeeper.sasl.principal",
        _S,
        None,
        "For GSSAPI: whose tickets are used, where the process has those of several.",
        ours=True,
    ),
    make_key(
        "zookeeper.sasl.service.name",
        _S,
        "zookeeper",
        "The first part of the servers' principals.",
        ours=True,
    ),
    make_key("zookeeper.ssl.client.enable", _B, "false", "The connection to the ensemble is encrypted (TLS)."),
    make_key(
        "zookeeper.ssl.keystore.location",
        _S,
        None,
        "A PEM file with the certificate and the key that a broker shows to the ensemble. With zookeeper.set.acl and "
        "no other credentials its subject is who the broker is, and has to be the same for all brokers.",
    ),
    make_key("zookeeper.ssl.keystore.password", _PASSWORD, None, "Of the key in that file."),
    make_key(
        "zookeeper.ssl.keystore.type",
        _S,
        None,
        "If not given, the file's name must end with .pem.",
        choices=("PEM",),
    ),
    make_key(
        "zookeeper.ssl.truststore.location",
        _S,
        None,
        "A PEM file with the authorities whose servers are trusted, besides those that the system trusts.",
    ),
    make_key(
        "zookeeper.ssl.truststore.type",
        _S,
        None,
        "If not given, the file's name must end with .pem.",
        choices=("PEM",),
    ),
    make_key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _S,
        "HTTPS",
        "A server's certificate must be for the name by which it is reached; with an empty value it need not.",
        choices=("HTTPS", ""),
    ),
    _inert("a PEM file of certificates has none", "zookeeper.ssl.truststore.password", _PASSWORD),
    _inert("there is one kind of connection", "zookeeper.clientCnxnSocket", _S),
    *(
        _inert(_TLS_IS_PYTHONS, *row, refuse_others=True)
        for row in (
            ("zookeeper.ssl.protocol", _S, "TLSv1.2"),
            ("zookeeper.ssl.enabled.protocols", _LIST),
            ("zookeeper.ssl.cipher.suites", _LIST),
        )
    ),
    *(
        _inert("revoked certificates are not looked for", name, _B, "false", refuse_others=True)
        for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
    ),
    _inert("there is no KRaft to migrate to", "zookeeper.metadata.migration.enable", _B, "false", refuse_others=True),
)
"""Every key ``zookeeper.*``."""
