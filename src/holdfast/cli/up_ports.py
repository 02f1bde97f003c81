"""Which ports the brokers of ``holdfast up`` have beside those of clients: for metrics, and among themselves.

    clients   --port          never another one: clients go by it. Taken: `up` refuses, and names one that is free
    metrics   --metrics-port  a port that was asked for and is taken is refused, too. Else what the cluster had, or
                              --port + 100; where that is taken another one, and a line says so
    brokers   --port + 200    another one where that is taken; nobody goes by it
    mutual    --port + 50     with --secure, of clients with certificates: another one where that is taken, or where
                              there are more than 50 brokers; DIR/client-mtls.properties names it

Each is the first of as many as there are brokers. Pure but for what ``is_free`` looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

IsFree: TypeAlias = Callable[[str, int], bool]
"""Whether a broker could listen at this host (empty: every address) and port."""
MAX_PORT: Final = 65535
METRICS_AFTER: Final = (100, 500, 600, 700, 800)
"""Broker 1 serves metrics on its port plus the first of these that is free, unless told otherwise."""
BROKERS_AFTER: Final = (200, 300, -200, -300, 900, 1000, 1100)
"""Broker 1 is reached by the others on its port plus the first of these that is free and not taken by what else the
cluster has."""
CERTIFICATES_AFTER: Final = (50, 350, 400, -100, -400, 1200, 1300)
"""Broker 1 takes clients with certificates on its port plus the first of these."""
STEP: Final = 300
"""A cluster that far above another one has none of its ports."""
STEPS: Final = 60


class PortError(Exception):
    """The message names the option, the port and what was expected."""


def all_free(host: str, port: int) -> bool:
    """For plans that nothing is started by."""
    return True


def metrics_port(
    asked: int | None, kept: int | None, port: int, brokers: int, host: str, is_free: IsFree
) -> tuple[int, str | None]:
    """(of broker 1, what to say about it). 0: there are none. ``kept``: what the cluster had. PortError."""
    last = MAX_PORT - brokers + 1
    if asked is not None:
        if asked > last:
            raise PortError(f"--metrics-port {asked} for {brokers} brokers: expected 0 to {last}")
        _refuse_overlap("--metrics-port", asked, port, brokers)
        for each in range(asked, asked + brokers) if asked else ():
            if not is_free(host, each):
                raise PortError(
                    f"--metrics-port {asked} for {brokers} brokers: port {each} is taken: expected free ones, or 0 for"
                    " no metrics"
                )
        return asked, None
    if kept == 0:
        return 0, None
    if kept is not None:
        if kept > last:
            raise PortError(f"metrics.port {kept} for {brokers} brokers: expected --metrics-port 0 to {last}")
        _refuse_overlap("metrics.port", kept, port, brokers)
    wanted = port + METRICS_AFTER[0] if kept is None else kept
    places = [place for place in (wanted, *(port + after for after in METRICS_AFTER)) if place <= last]
    found = next((place for place in places if _fits(place, brokers, (port,), host, is_free)), None)
    if found == wanted or not places:
        return found or 0, None
    if found is None:
        return wanted, f"port {wanted} for metrics is taken: there are none before it is free"
    return found, f"port {wanted} for metrics is taken: they are on {found}"


def brokers_port(port: int, metrics: int, brokers: int, host: str, is_free: IsFree) -> int:
    """Of broker 1: neither those of clients nor those of metrics. Where all are taken the first that it could be."""
    others = (port, metrics) if metrics else (port,)
    places = [
        place
        for place in (port + after for after in BROKERS_AFTER)
        if 1 <= place <= MAX_PORT - brokers + 1 and not any(abs(place - other) < brokers for other in others)
    ]
    return next((place for place in places if _fits(place, brokers, others, host, is_free)), places[0])


def certificates_port(taken: tuple[int, ...], brokers: int, host: str, is_free: IsFree) -> int:
    """Of broker 1, where clients log in by a certificate. ``taken``: the first of each kind that the cluster has."""
    places = [
        place
        for place in (taken[0] + after for after in CERTIFICATES_AFTER)
        if 1 <= place <= MAX_PORT - brokers + 1 and not any(abs(place - other) < brokers for other in taken)
    ]
    return next((place for place in places if _fits(place, brokers, taken, host, is_free)), places[0])


def other_port(port: int, brokers: int, host: str, is_free: IsFree) -> int | None:
    """A --port with which a cluster beside this one has all that follows from it, or None."""
    for place in range(port + STEP, min(port + STEP * STEPS, MAX_PORT - brokers - STEP), STEP):
        wanted = (place, place + METRICS_AFTER[0], place + BROKERS_AFTER[0])
        if all(is_free(host, first + number) for first in wanted for number in range(brokers)):
            return place
    return None


def _fits(first: int, brokers: int, others: tuple[int, ...], host: str, is_free: IsFree) -> bool:
    if any(abs(first - other) < brokers for other in others):
        return False
    return all(is_free(host, each) for each in range(first, first + brokers))


def _refuse_overlap(option: str, first: int, port: int, brokers: int) -> None:
    if first and abs(first - port) < brokers:
        raise PortError(f"{option} {first} for {brokers} brokers: these are ports of brokers, {port} and on")
