"""Keys of logins: which mechanisms a listener takes, what brokers log in with, and how long a login counts.

Values only. A listener's own value is ``listener.name.NAME.KEY``, that of one mechanism of it
``listener.name.NAME.MECHANISM.KEY``, both in small letters, as in Kafka (KIP-103, KIP-226).
"""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, make_key

_I, _L, _S, _LIST, _PASSWORD = (
    ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD,
)  # fmt: skip

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
REAUTH: Final = "connections.max.reauth.ms"
FAILURE_DELAY: Final = "connection.failed.authentication.delay.ms"
MAX_RECEIVE: Final = "sasl.server.max.receive.size"
OF_A_MECHANISM: Final = frozenset((JAAS, REAUTH))
"""What a listener may have a value of for each mechanism."""
AT_A_START: Final = (ENABLED_MECHANISMS, JAAS, BETWEEN_BROKERS)
"""Read once, by a broker that starts. Kafka takes changes of them while it runs, for listeners that come later: those
that are there go on as before, which tells nobody that a mechanism he has switched off is still taken. No listener
comes later here, so a change is refused."""

SASL_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        ENABLED_MECHANISMS,
        _LIST,
        "GSSAPI",
        f"How one may log in on listeners with SASL: {', '.join(SASL_MECHANISMS)}. GSSAPI, Kafka's default, is not "
        "spoken, so a listener with SASL needs a value.",
        per_listener=True,
    ),
    make_key(
        JAAS,
        _PASSWORD,
        None,
        "Kafka's line for a login module: for PLAIN the users (user_NAME=\"password\"), and what this broker logs in "
        "with at others (username and password). Best for one listener and mechanism.",
        per_listener=True,
    ),
    make_key(
        BETWEEN_BROKERS,
        _S,
        "GSSAPI",
        "How this broker logs in at others, where their listener has SASL: one of sasl.enabled.mechanisms.",
    ),
    make_key(
        REAUTH,
        _L,
        0,
        "A login counts for so long; then the client logs in again on its connection (KIP-368), or the connection is "
        "closed. 0 or less: a login does not end, unless its token does.",
        per_listener=True,
    ),
    make_key(
        FAILURE_DELAY,
        _I,
        100,
        "A failed login is answered, and its connection closed, after this.",
        0,
    ),
    make_key(
        MAX_RECEIVE,
        _I,
        524_288,
        "The most bytes of a request of a client that has not logged in; a longer one closes the connection.",
    ),
)  # fmt: skip
