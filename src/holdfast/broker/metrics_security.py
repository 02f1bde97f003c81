"""Who logged in, who did not, whom a quota made wait, when certificates end: what a broker tells Prometheus of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.broker.certificates import Certificates
from holdfast.broker.gate import Gate, LoginCounts
from holdfast.broker.metrics_lines import head, labels, line, of_listener
from holdfast.broker.metrics_names import SOCKET_MBEAN, SOCKETS
from holdfast.broker.quotas import ClientQuotas, Throttled

if TYPE_CHECKING:
    from holdfast.broker.server import Server

_LOGINS: Final = (
    ("successful_authentication", "succeeded", "Logins, and handshakes of TLS where there is nothing else to prove."),
    ("failed_authentication", "failed", "Logins and handshakes of TLS that were refused."),
    ("successful_reauthentication", "renewed", "Logins of connections that had logged in before."),
    ("failed_reauthentication", "not_renewed", "Those that were refused."),
)
"""Kafka's attribute without its ending, attribute of LoginCounts, meaning."""


class SecuredHost(Protocol):
    """The parts that the numbers are of."""

    certificates: Certificates
    gate: Gate
    quotas: ClientQuotas
    server: Server


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityReading:
    """Since the broker started. ``logins``: by listener; ``throttled``: by quota; ``ends``: by listener, when its
    certificate is over, in seconds since 1970."""

    logins: Mapping[str, LoginCounts] = field(default_factory=dict)
    throttled: Mapping[str, Throttled] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


def read_security(broker: SecuredHost) -> SecurityReading:
    """Of all listeners, as Kafka tells zeros of those where nobody logs in."""
    shaken, found = broker.server.handshakes, {}
    for name in broker.server.accepted:
        sasl = broker.gate.logins.get(name)
        failed = shaken.failed.get(name, 0)
        if sasl is None:
            found[name] = LoginCounts(succeeded=shaken.succeeded.get(name, 0), failed=failed)
        else:
            found[name] = LoginCounts(sasl.succeeded, sasl.failed + failed, sasl.renewed, sasl.not_renewed)
    throttled = {quota: Throttled(each.requests, each.told_ms) for quota, each in broker.quotas.throttled.items()}
    return SecurityReading(logins=found, throttled=throttled, ends=broker.certificates.ends())


def security_lines(reading: SecurityReading) -> Iterator[str]:
    """Kafka's counters of logins by listener, and ours of quotas and certificates."""
    for name, attribute, meaning in _LOGINS:
        family = f"{SOCKETS}{name}_total"
        yield head(family, "counter", f"{SOCKET_MBEAN} {meaning}")
        for listener, counts in reading.logins.items():
            yield line(family, of_listener(listener), getattr(counts, attribute))
    family = "holdfast_throttled_requests_total"
    yield head(family, "counter", "Requests whose client had to wait for a quota, by the quota that said so first.")
    for quota, each in reading.throttled.items():
        yield line(family, labels({"quota": quota}), each.requests)
    family = "holdfast_throttle_seconds_total"
    yield head(family, "counter", "For how long, all together.")
    for quota, each in reading.throttled.items():
        yield line(family, labels({"quota": quota}), each.told_ms / 1000)
    family = "holdfast_certificate_not_after_timestamp_seconds"
    yield head(family, "gauge", "When the first certificate of what a listener shows ends: seconds since 1970.")
    for listener, ends_s in reading.ends.items():
        yield line(family, labels({"listener": listener}), ends_s)
