"""Keys of TLS: what a broker shows, whom it believes, what it speaks, and what a client's certificate makes of it.

Values only; client/listener_tls.py reads them, broker/tls_listener.py speaks by them. Names, types and defaults are
Kafka's. JKS, its default for stores, cannot be read without Java: with it the file is looked at.
"""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, UpdateMode, make_key

_B, _S, _LIST, _PASSWORD = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
_EACH = UpdateMode.PER_BROKER


def _tls(
    name: str,
    kind: ConfigType,
    default: str | None,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    update: UpdateMode = _EACH,
) -> ConfigKey:
    return make_key(name, kind, default, doc, choices=choices, update=update, per_listener=True)


TLS_KEYS: Final[tuple[ConfigKey, ...]] = (
    _tls(
        "ssl.keystore.type",
        _S,
        "JKS",
        "PEM, or PKCS12 with the extra `secure`. With JKS the file is what it is; one that is a JKS is refused with "
        "the line that makes a PKCS12 of it.",
    ),
    _tls(
        "ssl.keystore.location",
        _S,
        None,
        "The file with the broker's key and certificate, and those that sign it. A renewed one is in force for new "
        "connections within two seconds, or when this key is set again, to the same path, too; open ones stay.",
    ),
    _tls("ssl.keystore.password", _PASSWORD, None, "Of a PKCS12."),
    _tls("ssl.keystore.key", _PASSWORD, None, "The key itself instead of a file: PKCS #8 in PEM, encrypted or not."),
    _tls(
        "ssl.keystore.certificate.chain",
        _PASSWORD,
        None,
        "The certificates beside ssl.keystore.key in PEM, the broker's first.",
    ),
    _tls("ssl.key.password", _PASSWORD, None, "Opens an encrypted key."),
    _tls("ssl.truststore.type", _S, "JKS", "As ssl.keystore.type."),
    _tls(
        "ssl.truststore.location",
        _S,
        None,
        "The file with the authorities whose certificates are believed; if there is none, those of the system.",
    ),
    _tls("ssl.truststore.password", _PASSWORD, None, "Of a PKCS12."),
    _tls("ssl.truststore.certificates", _PASSWORD, None, "The authorities themselves instead of a file, in PEM."),
    _tls(
        "ssl.client.auth",
        _S,
        "none",
        "Whether clients of SSL listeners show a certificate. A SASL_SSL listener asks only if its own key says so.",
        choices=("required", "requested", "none"),
    ),
    _tls(
        "ssl.principal.mapping.rules",
        _S,
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its principal: RULE:PATTERN/REPLACEMENT/[LU] "
        "and DEFAULT, by commas; the first one that fits. If none does, the connection is closed.",
        update=UpdateMode.READ_ONLY,
    ),
    _tls("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "The versions of TLS that are spoken."),
    _tls("ssl.protocol", _S, "TLSv1.3", "The newest of them: TLSv1.2, TLSv1.3, or TLS for any."),
    _tls(
        "ssl.cipher.suites",
        _LIST,
        "",
        "The suites of TLS 1.2, by Java's names or OpenSSL's. Those of TLS 1.3 cannot be chosen. Empty: OpenSSL's.",
    ),
    _tls(
        "ssl.endpoint.identification.algorithm",
        _S,
        "https",
        "Whether other brokers' certificates must name their host, when this one connects. Empty: they need not.",
    ),
    _tls(
        "ssl.allow.dn.changes",
        _B,
        "false",
        "Whether a renewed certificate may have another subject.",
        update=UpdateMode.READ_ONLY,
    ),
    _tls(
        "ssl.allow.san.changes",
        _B,
        "false",
        "Whether a renewed certificate may lack a host that the one before named.",
        update=UpdateMode.READ_ONLY,
    ),
)
