"""Keys of Kafka that are taken and have no effect here, each with why.

Clients and tools that copy a configuration key by key shall not fail over a key that has no meaning here. A value
that would ask for what is not there is refused (``only_default``): nobody is left to believe that it works. What
docs/configuration.md says of them is made from this table. Their names, types, defaults and ranges are Kafka's.
"""

from typing import Final

from holdfast.model.config_key import LONG_MAX, ConfigKey, ConfigType, UpdateMode, make_key

_B, _S, _I, _L, _D, _LIST, _CLASS, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
)
_SHORT = ConfigType.SHORT

NO_TIERS: Final = "there is no tiered storage"
PREALLOCATE: Final = "files of segments grow as they are written"
_NO_PROTOCOL: Final = "there is no such kind of group"
_THREADS: Final = "one event loop serves all connections, and each log directory has its own threads"
_NO_KERBEROS: Final = "GSSAPI is not spoken"
_RENEWED: Final = "a broker renews its own logins when they are about to end"
_NO_PLUGINS: Final = "there are no plug-ins; metrics are served at metrics.port"


def _inert(
    why: str,
    name: str,
    kind: ConfigType,
    default: str | int | None,
    low: float | None = None,
    *,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    refuse_others: bool = False,
    update: UpdateMode = UpdateMode.CLUSTER_WIDE,
) -> ConfigKey:
    return make_key(
        name, kind, default, f"No effect: {why}.", low, high=high, choices=choices, update=update,
        inert=why, only_default=refuse_others,
    )  # fmt: skip


_TIERS = (
    *(
        _inert(NO_TIERS, *row)
        for row in (
            ("remote.fetch.max.wait.ms", _I, 500, 1),
            ("remote.list.offsets.request.timeout.ms", _L, 30_000, 1),
            ("remote.log.index.file.cache.total.size.bytes", _L, 1_073_741_824, 1),
            ("remote.log.manager.copier.thread.pool.size", _I, 10, 1),
            ("remote.log.manager.copy.max.bytes.per.second", _L, LONG_MAX, 1),
            ("remote.log.manager.expiration.thread.pool.size", _I, 10, 1),
            ("remote.log.manager.fetch.max.bytes.per.second", _L, LONG_MAX, 1),
            ("remote.log.manager.follower.thread.pool.size", _I, 2, 1),
            ("remote.log.reader.threads", _I, 10, 1),
        )
    ),
    _inert(NO_TIERS, "log.local.retention.bytes", _L, -2, -2, refuse_others=True),
    _inert(NO_TIERS, "log.local.retention.ms", _L, -2, -2, refuse_others=True),
    _inert(NO_TIERS, "follower.fetch.last.tiered.offset.enable", _B, "false", refuse_others=True),
)

_PROTOCOLS = (
    *(
        _inert(_NO_PROTOCOL, *row)
        for row in (
            ("group.consumer.assignment.interval.ms", _I, 1000, 0),
            ("group.share.assignment.interval.ms", _I, 1000, 0),
            ("group.streams.assignment.interval.ms", _I, 1000, 0),
            ("share.coordinator.cached.buffer.max.bytes", _I, 1_048_588, 524_288),
        )
    ),
    _inert("the coordinator keeps no buffer", "group.coordinator.cached.buffer.max.bytes", _I, 1_048_588, 524_288),
)

_MACHINE = (
    _inert("each log directory is loaded by its own thread", "num.recovery.threads.per.data.dir", _I, 2, 1),
    _inert("each connection has a bound of its own", "queued.max.requests", _I, 500, 1, update=UpdateMode.READ_ONLY),
    *(
        _inert(_THREADS, *row)
        for row in (
            ("background.threads", _I, 10, 1),
            ("num.io.threads", _I, 8, 1),
            ("num.network.threads", _I, 3, 1),
        )
    ),
    _inert("a follower has one connection per leader and log directory", "num.replica.fetchers", _I, 1, 1),
    _inert(PREALLOCATE, "log.preallocate", _B, "false", refuse_others=True),
    _inert(_NO_PLUGINS, "config.providers", _LIST, "", refuse_others=True),
    _inert(_NO_PLUGINS, "metric.reporters", _LIST, "org.apache.kafka.common.metrics.JmxReporter", refuse_others=True),
)

_SECURITY = (
    _inert(
        "there are no plug-ins: a principal is what ssl.principal.mapping.rules and a login make",
        "principal.builder.class",
        _CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        refuse_others=True,
        update=UpdateMode.PER_BROKER,
    ),
    *(
        _inert(_NO_KERBEROS, *row, refuse_others=True, update=UpdateMode.PER_BROKER)
        for row in (
            ("sasl.kerberos.kinit.cmd", _S, "/usr/bin/kinit"),
            ("sasl.kerberos.min.time.before.relogin", _L, 60_000),
            ("sasl.kerberos.principal.to.local.rules", _LIST, "DEFAULT"),
            ("sasl.kerberos.service.name", _S, None),
            ("sasl.kerberos.ticket.renew.jitter", _D, "0.05"),
            ("sasl.kerberos.ticket.renew.window.factor", _D, "0.8"),
        )
    ),
    *(
        _inert(_RENEWED, *row, refuse_others=True, update=UpdateMode.PER_BROKER)
        for row in (
            ("sasl.login.refresh.buffer.seconds", _SHORT, 300),
            ("sasl.login.refresh.min.period.seconds", _SHORT, 60),
            ("sasl.login.refresh.window.factor", _D, "0.8"),
            ("sasl.login.refresh.window.jitter", _D, "0.05"),
        )
    ),
)

_TOKENS = (
    _inert(
        "nothing goes by the scope of a token that somebody has signed",
        "sasl.oauthbearer.scope.claim.name",
        _S,
        "scope",
        update=UpdateMode.READ_ONLY,
    ),
)

_OF_THE_JVM: Final = "nothing of the JVM runs here; OpenSSL does what TLS needs"
_JVM = tuple(
    _inert(_OF_THE_JVM, *row, refuse_others=True, update=UpdateMode.PER_BROKER)
    for row in (
        ("ssl.engine.factory.class", _CLASS, None),
        ("ssl.keymanager.algorithm", _S, "SunX509"),
        ("ssl.provider", _S, None),
        ("ssl.secure.random.implementation", _S, None),
        ("ssl.trustmanager.algorithm", _S, "PKIX"),
    )
)

INERT_KEYS: Final[tuple[ConfigKey, ...]] = (*_TOKENS, *_TIERS, *_PROTOCOLS, *_MACHINE, *_SECURITY, *_JVM)
"""Every key of a broker that has no effect here."""
