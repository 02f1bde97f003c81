"""Whether a listener may show what its keys and files say: at the start, and in the place of what is in force.

A certificate that is not valid yet or any more is shown by no listener. What brokers show each other is believed by the
truststore beside it, too, as all brokers have the same authorities: both ways of a connection between them are tried
with a handshake in memory, as Kafka does it. Otherwise one file would take a broker from its cluster.

What is in force may have ended meanwhile. Then nothing is worse than it is, and each change that mends a part is taken.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Final

from holdfast.broker.tls_listener import InForce
from holdfast.client.listener_tls import CIPHERS, CLIENT_AUTH, ListenerTls, server_context
from holdfast.client.security import tls_context
from holdfast.client.security_options import KEYSTORE, TRUSTSTORE
from holdfast.model.errors import ConfigError
from holdfast.security.validity import shown_time

_STEPS: Final = 8
"""More than a handshake has."""


def check_shown(after: InForce, before: InForce | None, now_s: float) -> None:
    """ConfigError: a certificate of what is shown is not valid yet, or not any more. ``before``: what is in force."""
    if before is not None and before.tls.settings.certificates == after.tls.settings.certificates:
        return
    for each in after.chain:
        who = f"the certificate of {each.subject}, which {each.issuer} has signed,"
        if now_s > each.validity.ends_s:
            what = f"{who} ended at {shown_time(each.validity.ends_s)}: expected one that is valid now"
            raise after.options.wrong_for_listener(after.options.given(KEYSTORE), what)
        if now_s < each.validity.begins_s:
            what = f"{who} is valid from {shown_time(each.validity.begins_s)} on: expected one that is valid now"
            raise after.options.wrong_for_listener(after.options.given(KEYSTORE), what)


def check_believed(after: InForce, before: InForce | None) -> None:
    """Of a listener that brokers use among each other. ConfigError: they would not believe each other."""
    is_new = before is None or before.tls.settings.certificates != after.tls.settings.certificates
    why = refusal(after.tls)
    if why is not None:
        if before is not None and not is_new and refusal(before.tls) is not None:
            return
        raise _not_believed(after, why) if before is None or is_new else _cause(after, before, why)
    if before is None or not is_new or before.tls.settings.trusted == after.tls.settings.trusted:
        return
    if refusal(before.tls) is None and (why := refusal(_with_keystore(after.tls, before.tls))) is not None:
        raise _forgets(after, before, why)


def refusal(tls: ListenerTls) -> str | None:
    """Why a listener and who connects to it with the same stores do not come together; None: they do. Names of hosts
    are not looked at."""
    to, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls_context(replace(tls.settings, check_hostname=False)).wrap_bio(back, to)
    sides = {"a server": client, "a client": server_context(tls).wrap_bio(to, back, server_side=True)}
    waiting = dict(sides)
    for _ in range(_STEPS):
        for judged, side in tuple(waiting.items()):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return f"as {judged}: {error.verify_message}"
            except ssl.SSLError as error:
                return str(error.reason).replace("_", " ").lower() if error.reason else str(error)
            del waiting[judged]
    return None if not waiting else "the handshake does not end"


def _with_keystore(tls: ListenerTls, other: ListenerTls) -> ListenerTls:
    shown = other.settings
    settings = replace(tls.settings, certificates=shown.certificates, key=shown.key, key_password=shown.key_password)
    return replace(tls, settings=settings)


def _who(shown: InForce) -> str:
    return f"the certificate of {shown.subject}, which {shown.chain[0].issuer} has signed"


def _not_believed(after: InForce, why: str) -> ConfigError:
    names = after.tls.settings.names
    what = (
        f"brokers use it among each other, and {names.truststore} does not vouch for {_who(after)} ({why}): expected "
        "one that it vouches for"
    )
    return after.options.wrong_for_listener(after.options.given(KEYSTORE), what)


def _cause(after: InForce, before: InForce, why: str) -> ConfigError:
    """The same certificate, which would be believed no more."""
    if before.tls.settings.trusted != after.tls.settings.trusted:
        return _forgets(after, before, why)
    key = CLIENT_AUTH if before.tls.asks != after.tls.asks else CIPHERS
    what = f"brokers use it among each other, and would not come together ({why}): expected a value with which they do"
    return after.options.wrong_for_listener(key, what)


def _forgets(after: InForce, before: InForce, why: str) -> ConfigError:
    what = (
        f"brokers use it among each other, and it does not vouch for what is in force, {_who(before)} ({why}): "
        "expected that it does until all brokers show another one"
    )
    return after.options.wrong_for_listener(after.options.given(TRUSTSTORE), what)
