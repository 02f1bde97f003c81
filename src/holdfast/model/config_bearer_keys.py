"""Keys of OAUTHBEARER: who signs tokens, where their keys are, and what a token must say.

Values only; broker/bearer.py goes by them. Names, types and defaults are Kafka's, but for the list of allowed
addresses, which is a property of the JVM there.
"""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, make_key

_I, _L, _S, _LIST, _CLASS = (
    ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS,
)  # fmt: skip

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
SIGNED_HANDLERS: Final = tuple(f"{_PACKAGE}{part}OAuthBearerValidatorCallbackHandler" for part in ("", "secured."))
UNSECURED_HANDLER: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
HANDLER: Final = "sasl.server.callback.handler.class"
KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
BACKOFF: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
BACKOFF_MAX: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
SKEW: Final = "sasl.oauthbearer.clock.skew.seconds"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
SUBJECT: Final = "sasl.oauthbearer.sub.claim.name"
ALLOWED_URLS: Final = "sasl.oauthbearer.allowed.urls"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"

BEARER_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        HANDLER,
        _CLASS,
        None,
        "Who checks tokens: with the first or the second of these names those are taken that a key of "
        f"{KEYS_URL} has signed; with the third, or without a value, those that nobody has signed, for tests alone: "
        "everybody can be everybody then. No other class of Java is loaded.",
        per_listener=True,
    ),
    make_key(
        KEYS_URL,
        _S,
        None,
        "Where the keys are of those who sign tokens, as a JWKS: file:///PATH, or https://HOST/PATH. Nothing is read "
        f"that {ALLOWED_URLS} does not have. Needs the extra `oauth`.",
        per_listener=True,
    ),
    make_key(
        ALLOWED_URLS,
        _LIST,
        "",
        f"The addresses that {KEYS_URL} and {TOKEN_URL} may have, each as a whole. In Kafka the property "
        "org.apache.kafka.sasl.oauthbearer.allowed.urls of the JVM (CVE-2025-27817).",
        ours=True,
    ),
    make_key(REFRESH, _L, 3_600_000, "The keys are read again after this.", per_listener=True),
    make_key(
        BACKOFF,
        _L,
        100,
        "When they cannot be read it is tried again after this, after twice that, and so on.",
        per_listener=True,
    ),
    make_key(BACKOFF_MAX, _L, 10_000, "The longest of these pauses.", per_listener=True),
    make_key(
        SKEW, _I, 30, "By so many seconds clocks may differ from that of who issues tokens.", per_listener=True,
    ),
    make_key(
        AUDIENCE,
        _LIST,
        "",
        "A token that says for whom it is (`aud`) must name one of these; with a value, every token must.",
        per_listener=True,
    ),
    make_key(ISSUER, _S, None, "Who must have issued a token (`iss`); anybody if not given.", per_listener=True),
    make_key(SUBJECT, _S, "sub", "The claim with the name of who holds a token.", per_listener=True),
    make_key(
        TOKEN_URL,
        _S,
        None,
        "Where this broker gets the token by which it logs in at others, with clientId and clientSecret of its "
        f"sasl.jaas.config. Nothing is asked that {ALLOWED_URLS} does not have.",
        per_listener=True,
    ),
    make_key(
        LOGIN_HANDLER,
        _CLASS,
        None,
        f"Taken beside {TOKEN_URL}, as clients of Kafka need it there.",
        per_listener=True,
    ),
)  # fmt: skip
BEARER_NAMES: Final = frozenset(key.name for key in BEARER_KEYS if key.per_listener)
"""What ``listener.name.NAME.oauthbearer.`` may stand before."""
