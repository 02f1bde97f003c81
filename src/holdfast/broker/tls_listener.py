"""One listener that speaks TLS: with which certificate now, and whom the certificate of a client names.

What is in force is replaced as a whole, by ``Certificates`` (certificates.py); connections that are open keep what they
were opened with.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.broker.handshakes import HandshakeError
from holdfast.client.listener_tls import RULES, ListenerTls, ListenerTlsOptions, server_context
from holdfast.client.security import pem_blocks
from holdfast.client.security_options import KEYSTORE
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol
from holdfast.security.der import DerError
from holdfast.security.dn import alternative_names, issuer, subject
from holdfast.security.principal import ANONYMOUS, Principal
from holdfast.security.principal_rules import PrincipalRules, RuleError
from holdfast.security.validity import Validity, validity

Marks = tuple[tuple[str, int, int, int] | None, ...]
"""Of each file: its path, what it is, when it changed, how long it is; None: it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is to be known of one certificate that a listener shows."""

    subject: str
    issuer: str
    validity: Validity


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What a listener shows, and how it judges. A value but for the context, which is never changed."""

    tls: ListenerTls
    context: ssl.SSLContext
    rules: PrincipalRules
    chain: tuple[Shown, ...]
    """The listener's own certificate first."""
    hosts: frozenset[bytes]
    marks: Marks
    options: ListenerTlsOptions
    """What it was made of, by whose names it is spoken of."""

    @property
    def subject(self) -> str:
        return self.chain[0].subject

    @property
    def ends_s(self) -> int:
        """When the first certificate of what is shown is over: seconds since 1970."""
        return min(each.validity.ends_s for each in self.chain)


def loaded(given: Mapping[str, str], listener: str, protocol: SecurityProtocol) -> InForce:
    """As the keys and the files say now. ConfigError. Reads files: not for the loop once a broker serves."""
    options = ListenerTlsOptions(given, listener)
    marks = marks_of(options.files())  # before they are read: what changes meanwhile is read again
    tls = options.listens(protocol)
    assert tls.settings.certificates is not None, "a listener has one"
    try:
        certificates = [ssl.PEM_cert_to_DER_cert(block) for _, block in pem_blocks(tls.settings.certificates)]
        chain = tuple(Shown(subject=subject(d), issuer=issuer(d), validity=validity(d)) for d in certificates)
        hosts = alternative_names(certificates[0])
    except (DerError, ValueError) as error:
        raise options.wrong(options.given(KEYSTORE), f"its certificates cannot be read: {error}") from None
    try:
        rules = PrincipalRules(tls.rules)
    except RuleError as error:
        raise options.wrong(RULES, str(error), shown=True) from None
    return InForce(
        tls=tls, context=server_context(tls), rules=rules, chain=chain, hosts=hosts, marks=marks, options=options
    )


def marks_of(files: tuple[str, ...]) -> Marks:
    """What a renewed file differs in."""
    found: list[tuple[str, int, int, int] | None] = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((path, status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def check_successor(before: InForce, after: InForce, listener: str) -> None:
    """ConfigError: the certificate is not the same party's (KAFKA-16305 has the keys that allow it)."""
    own = f"listener.name.{listener.lower()}."
    if after.subject != before.subject and not after.tls.may_change_name:
        raise ConfigError(
            f"the certificate of listener {listener} names {after.subject}: expected {before.subject}, as the one in "
            f"force, or {own}ssl.allow.dn.changes=true"
        )
    if not after.hosts >= before.hosts and not after.tls.may_change_hosts:
        raise ConfigError(
            f"the certificate of listener {listener} is not for all hosts of the one in force: expected those, or "
            f"{own}ssl.allow.san.changes=true"
        )


class ListeningTls:
    """What handshakes ask (handshakes.py, TlsListener)."""

    def __init__(self, name: str, protocol: SecurityProtocol, in_force: InForce) -> None:
        self.name = name
        self.protocol = protocol
        self.in_force = in_force

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        return self.in_force.context.wrap_bio(incoming, outgoing, server_side=True)

    def principal(self, tls: ssl.SSLObject) -> Principal:
        """ANONYMOUS without a certificate, and where a login is still to come."""
        if self.protocol is not SecurityProtocol.SSL or self.in_force.tls.asks == "none":
            return ANONYMOUS
        shown = tls.getpeercert(binary_form=True)
        if shown is None:
            return ANONYMOUS
        try:
            return Principal.user(self.in_force.rules.name(subject(shown)))
        except (DerError, RuleError) as error:
            raise HandshakeError(str(error)) from None
