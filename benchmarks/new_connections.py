"""``python -m benchmarks.new_connections``: what it costs those that are connected when many others connect.

One broker of SASL_SSL. Another process opens connections at a steady rate, each with the handshake of TLS 1.3 and a
login by SCRAM-SHA-512, and closes them; it has computed the keys of its password once. Told: the broker's CPU for each,
and the p99 of small requests of a client that is connected, before and during. Exit code 1 when the limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import secrets
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.guesses import exactly, frame, handshake, p99_ms, token, token_of
from benchmarks.tls import PASSWORD, SCRAM, USER, Subject, log_in, ours
from holdfast.protocol.scram import ScramClient
from holdfast.testing import wait_for

RATE, SECONDS = 300, 10
P99_MOST = 3.0


def _context(trusted: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted)
    return context


async def _one(port: int, context: ssl.SSLContext) -> float:
    """Seconds until one is logged in."""
    began_s = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    client = ScramClient("SCRAM-SHA-512", USER, PASSWORD, secrets.token_urlsafe(24))
    writer.write(handshake("SCRAM-SHA-512"))
    await frame(reader)
    writer.write(token(client.first()))
    writer.write(token(client.final(token_of(await frame(reader)))))
    client.check(token_of(await frame(reader)))
    took_s = time.monotonic() - began_s
    writer.close()
    return took_s


def comers(
    port: int, trusted: str, rate: int, seconds: float, told: multiprocessing.SimpleQueue[tuple[int, int, float]]
) -> None:
    """Another process: how many were asked, how many logged in, and their median time in seconds. It takes no processor
    from those that are measured."""
    os.nice(10)
    context = _context(trusted)

    async def run() -> None:
        began_s, tasks = time.monotonic(), []
        for number in range(int(rate * seconds)):
            if (wait_s := began_s + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(asyncio.create_task(_one(port, context)))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        took = sorted(each for each in found if isinstance(each, float))
        told.put((len(found), len(took), took[len(took) // 2] if took else 0.0))

    asyncio.run(run())


def connected(subject: Subject) -> socket.socket:
    """A client that is there all the time."""
    sock = socket.create_connection(("127.0.0.1", subject.ports[SCRAM]))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secured = _context(subject.trusted).wrap_socket(sock, server_hostname="localhost")
    log_in(secured)
    return secured


def _serves(subject: Subject) -> bool:
    with connected(subject) as sock:
        sock.sendall(handshake("none"))
        return bool(exactly(sock, 4))


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.new_connections", description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    print(machine.headline())
    with tempfile.TemporaryDirectory() as folder, ours(Path(folder)) as subject:
        wait_for(lambda: _serves(subject), "the broker to serve", timeout_s=60)
        client = connected(subject)
        p99_ms(client, 2)  # warm
        before_ms = p99_ms(client, 10)
        told: multiprocessing.SimpleQueue[tuple[int, int, float]] = multiprocessing.SimpleQueue()
        arguments = (subject.ports[SCRAM], subject.trusted, options.rate, options.seconds, told)
        process = multiprocessing.Process(target=comers, args=arguments)
        cpu_s = subject.cpu_s()
        process.start()
        during_ms = p99_ms(client, 600, process)
        process.join()
        asked, came, median_s = told.get()
        each_ms = (subject.cpu_s() - cpu_s) * 1000 / max(1, came)
    good = came == asked and during_ms <= P99_MOST * before_ms
    print(
        f"{asked} connections at {options.rate}/s, {came} logged in, median {median_s * 1000:.1f} ms, {each_ms:.2f} ms "
        f"of CPU each; p99 of a connected client {before_ms:.2f} ms before, {during_ms:.2f} during: "
        f"{during_ms / before_ms:.2f} times (at most {P99_MOST:g}){'' if good else '  MISSED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
