"""Who this process is to an ensemble, and why one does not let it in or does not answer: in words, with the keys.

Pure: of the settings, and of what a connection ended with. Never a password.
"""

from __future__ import annotations

from typing import Final

from holdfast.coordination.zookeeper_settings import Sasl, ZooKeeperSettings

_NOBODY: Final = "nobody: it has no zookeeper.sasl.mechanism, zookeeper.auth.digest or zookeeper.ssl.keystore.location"
_HUNG_UP: Final = ("socket connection broken", "reset by peer", "UNEXPECTED_EOF", "EOF occurred")
"""What a connection that the server closed ends with, in kazoo's words or those of ssl."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", *_HUNG_UP)
_NOT_TAKEN: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
_OTHER_NAME: Final = ("Hostname mismatch", "IP address mismatch")


def who(settings: ZooKeeperSettings) -> str:
    """All that its credentials make of it."""
    names: list[str] = []
    if settings.sasl is not None:
        names.append(_of_sasl(settings.sasl))
    if settings.digest is not None:
        names.append(f"user {settings.digest.user} with the password that is given (zookeeper.auth.digest)")
    if settings.tls is not None and settings.tls.keystore is not None:
        names.append(f"the subject of the certificate in {settings.tls.keystore} (zookeeper.ssl.keystore.location)")
    return " and ".join(names) or _NOBODY


def _of_sasl(sasl: Sasl) -> str:
    if sasl.mechanism != "GSSAPI":
        return f"user {sasl.user} (zookeeper.sasl.username)"
    if sasl.principal is not None:
        return f"principal {sasl.principal} (zookeeper.sasl.principal)"
    return "whom the Kerberos tickets of this process are of (zookeeper.sasl.mechanism=GSSAPI)"


def not_allowed(settings: ZooKeeperSettings) -> str:
    """Of a node whose ACL is for others."""
    words = (
        f"its ACL does not allow it. This client is {who(settings)}: expected one that the ACL names, which is whoever "
        "made the node: all brokers of a cluster need one identity"
    )
    is_certificate = settings.sasl is None and settings.digest is None and settings.tls is not None
    if not is_certificate or settings.tls is None or settings.tls.keystore is None:
        return words
    return (
        f"{words}, and certificates of several hosts are one only with one subject; else zookeeper.sasl.mechanism or "
        "zookeeper.auth.digest beside them"
    )


def not_accepted(settings: ZooKeeperSettings) -> str:
    """Of an ensemble that lets nobody in by these credentials."""
    words = f"the ensemble does not accept the credentials of {who(settings)}"
    if settings.sasl is None:
        return f"{words}: expected zookeeper.sasl.mechanism, if its servers let in only who logs in by SASL"
    if settings.sasl.mechanism == "GSSAPI":
        return (
            f"{words}: expected tickets that are valid, and servers with the principal "
            f"{settings.sasl.service}/HOST (zookeeper.sasl.service.name)"
        )
    return (
        f"{words}: expected a user that the servers' JAAS file has (user_NAME), with its password in "
        "zookeeper.sasl.password"
    )


def no_answer(settings: ZooKeeperSettings, trouble: str) -> str:
    """What is to be looked at when a connection ended with ``trouble``; empty when that says it all."""
    tls = settings.tls
    if tls is None:
        if _has(trouble, _HUNG_UP):
            return (
                "a server closed the connection, as one whose port takes TLS does: expected "
                "zookeeper.ssl.client.enable=true for such a port"
            )
        return ""
    if "CERTIFICATE_VERIFY_FAILED" in trouble:
        if _has(trouble, _OTHER_NAME):
            return (
                "expected a certificate for the name that zookeeper.connect has, or an empty "
                "zookeeper.ssl.endpoint.identification.algorithm"
            )
        given = "not set" if tls.truststore is None else tls.truststore
        return (
            "expected the authority of the servers' certificates in zookeeper.ssl.truststore.location, which is "
            f"{given}"
        )
    if "ALERT" in trouble and _has(trouble, _NOT_TAKEN):
        if tls.keystore is None:
            return "the servers ask for a certificate: expected zookeeper.ssl.keystore.location, which is not set"
        return (
            f"the servers do not take the certificate in {tls.keystore} (zookeeper.ssl.keystore.location): expected "
            "one of an authority that they trust, for clients, which has not ended"
        )
    if _has(trouble, _NO_TLS):
        words = (
            "zookeeper.ssl.client.enable=true: expected a port in zookeeper.connect that takes TLS (secureClientPort)"
        )
        if tls.keystore is None:
            return (
                f"{words}; if it does, its server may ask for a certificate: zookeeper.ssl.keystore.location is not set"
            )
        return words
    return ""


def _has(trouble: str, words: tuple[str, ...]) -> bool:
    return any(each in trouble for each in words)
