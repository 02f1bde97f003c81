"""How an ensemble is reached: what the keys ``zookeeper.*`` of a broker mean together.

Values only. Nothing here connects, or loads a library that does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.coordination.zookeeper_client import MAX_REQUEST_BYTES
from holdfast.metadata import znode_users
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError

SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens", znode_users.SECRET)
"""With ``set_acl``, nobody but brokers reads what is here or below, as with Kafka; the last one is ours."""
OPEN = "/consumers"
"""The node itself is anybody's even then, as with Kafka: consumers of old write below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Credentials of ZooKeeper's own scheme ``digest``."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """``mechanism``: DIGEST-MD5 with a user and a password, or GSSAPI with the tickets of the process, perhaps those of
    one ``principal``. ``service``: the first part of the servers' principals."""

    mechanism: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    principal: str | None = None
    service: str = "zookeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files: of the certificate and the key that servers may ask for, and of the authorities that sign theirs."""

    keystore: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    truststore: str | None = None
    check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """One ensemble, and how a client of it behaves. ``chroot`` is empty or begins with a slash and ends without one."""

    servers: str
    """HOST:PORT, by commas."""
    chroot: str = ""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10
    """Requests that wait for an answer; the next one waits until there are fewer."""
    max_request_bytes: int = MAX_REQUEST_BYTES
    set_acl: bool = False
    """What is made is for this client's credentials alone, but for reading (SENSITIVE)."""
    digest: Digest | None = None
    sasl: Sasl | None = None
    tls: Tls | None = None

    @property
    def number_of_servers(self) -> int:
        return self.servers.count(",") + 1

    def is_sensitive(self, path: str) -> bool:
        """Of a path below the chroot."""
        return any(path == each or path.startswith(f"{each}/") for each in SENSITIVE)

    def is_open(self, path: str) -> bool:
        """Of a path below the chroot: whether anybody may do anything with a node that is made there."""
        return not self.set_acl or path == OPEN

    @classmethod
    def of(cls, config: BrokerConfig) -> ZooKeeperSettings:
        """ConfigError when the keys contradict each other, or ask for what is not there."""
        connect = config.optional_str("zookeeper.connect")
        if connect is None:
            raise ConfigError("zookeeper.connect is not set: expected HOST:PORT[,HOST:PORT]...[/CHROOT]")
        servers, slash, chroot = connect.partition("/")
        session_timeout_ms = config.int("zookeeper.session.timeout.ms")
        settings = cls(
            servers=servers,
            chroot=slash + chroot,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=config.optional_int("zookeeper.connection.timeout.ms") or session_timeout_ms,
            max_in_flight=config.int("zookeeper.max.in.flight.requests"),
            set_acl=config.bool("zookeeper.set.acl"),
            digest=_digest(config),
            sasl=_sasl(config),
            tls=_tls(config),
        )
        has_name = settings.digest or settings.sasl or (settings.tls and settings.tls.keystore)
        if settings.set_acl and not has_name:
            raise ConfigError(
                "zookeeper.set.acl=true, but nothing says who this broker is: expected zookeeper.auth.digest, "
                "zookeeper.sasl.mechanism or zookeeper.ssl.keystore.location"
            )
        return settings


def _digest(config: BrokerConfig) -> Digest | None:
    text = config.optional_str("zookeeper.auth.digest")
    if text is None:
        return None
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise ConfigError("Invalid value [hidden] for configuration zookeeper.auth.digest: expected USER:PASSWORD")
    return Digest(user=user, password=password)


def _sasl(config: BrokerConfig) -> Sasl | None:
    mechanism = config.optional_str("zookeeper.sasl.mechanism")
    user = config.optional_str("zookeeper.sasl.username")
    password = config.optional_str("zookeeper.sasl.password")
    principal = config.optional_str("zookeeper.sasl.principal")
    given = {"username": user, "password": password, "principal": principal}
    wanted = {"DIGEST-MD5": {"username", "password"}, "GSSAPI": set[str]()}.get(mechanism or "", set())
    allowed = wanted | ({"principal"} if mechanism == "GSSAPI" else set())
    for name, value in given.items():
        if value is None and name in wanted:
            raise ConfigError(f"zookeeper.sasl.mechanism={mechanism} without zookeeper.sasl.{name}")
        if value is not None and name not in allowed:
            raise ConfigError(
                f"zookeeper.sasl.{name} is set: expected nothing with "
                f"{'no zookeeper.sasl.mechanism' if mechanism is None else f'zookeeper.sasl.mechanism={mechanism}'}"
            )
    if mechanism is None:
        return None
    service = config.str("zookeeper.sasl.service.name")
    return Sasl(mechanism=mechanism, user=user, password=password, principal=principal, service=service)


def _tls(config: BrokerConfig) -> Tls | None:
    keystore = config.optional_str("zookeeper.ssl.keystore.location")
    password = config.optional_str("zookeeper.ssl.keystore.password")
    truststore = config.optional_str("zookeeper.ssl.truststore.location")
    if not config.bool("zookeeper.ssl.client.enable"):
        for kind, location in (("keystore", keystore), ("truststore", truststore)):
            if location is not None:
                raise ConfigError(
                    f"zookeeper.ssl.{kind}.location={location} without zookeeper.ssl.client.enable=true: nothing would "
                    "be encrypted"
                )
        return None
    _check_is_pem(config, "keystore", keystore)
    _check_is_pem(config, "truststore", truststore)
    return Tls(
        keystore=keystore,
        keystore_password=password,
        truststore=truststore,
        check_hostname=bool(config.str("zookeeper.ssl.endpoint.identification.algorithm")),
    )


def _check_is_pem(config: BrokerConfig, kind: str, location: str | None) -> None:
    """Where no type is given the file's name says it, as with ZooKeeper's own client."""
    if location is None:
        return
    kinds = {"keystore": "zookeeper.ssl.keystore.type", "truststore": "zookeeper.ssl.truststore.type"}
    if config.optional_str(kinds[kind]) is None and not location.endswith(".pem"):
        raise ConfigError(
            f"Invalid value {location} for configuration zookeeper.ssl.{kind}.location: expected a file *.pem, or "
            f"{kinds[kind]}=PEM beside it"
        )
