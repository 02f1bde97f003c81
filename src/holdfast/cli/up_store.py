"""Where the metadata of a cluster of ``holdfast up`` is: ``--store``, and what a data directory had before.

    embedded                       directories of DIR, shared by the brokers
    zookeeper                      a ZooKeeper server beside the brokers, with all it knows in DIR/zookeeper
    HOST:PORT[,HOST:PORT]/chroot   an ensemble that somebody else runs

Values only; cli/local_zookeeper.py has the server's process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.cli.up_address import HOST
from holdfast.model.config import KEYS, STORE_EMBEDDED
from holdfast.model.config_value import parse_value
from holdfast.model.errors import ConfigError

STORE, CONNECT = "metadata.store", "zookeeper.connect"
ZOOKEEPER: Final = "zookeeper"
FOLDER: Final = "zookeeper"
"""Of the server, in the data directory: there is one where the server is ours."""
PORT_AFTER: Final = (400, 500, -400, -500)
"""The server's port is that of broker 1 plus the first of these that is a port."""
LAST_PORT: Final = 65535


class ChosenStoreError(ValueError):
    """The store cannot be had; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenStore:
    """``connect``: zookeeper.connect, None for the embedded store. ``port``: of the server that is ours."""

    connect: str | None = None
    port: int | None = None

    @property
    def is_shared(self) -> bool:
        """Brokers of other machines can have it too."""
        return self.connect is not None and self.port is None

    @property
    def properties(self) -> dict[str, str]:
        return {} if self.connect is None else {STORE: ZOOKEEPER, CONNECT: self.connect}

    def __str__(self) -> str:
        if self.connect is None:
            return STORE_EMBEDDED
        return f"{self.connect}" if self.port is None else ZOOKEEPER


def checked(text: str) -> str:
    """``--store`` as it is given; ChosenStoreError."""
    text = text.strip()
    if text in (STORE_EMBEDDED, ZOOKEEPER):
        return text
    try:
        parse_value(KEYS[CONNECT], text)
    except ConfigError:
        raise ChosenStoreError(
            f"{text!r}: expected {STORE_EMBEDDED}, {ZOOKEEPER}, or an ensemble as {KEYS[CONNECT].range}"
        ) from None
    return text


def store_of(data_dir: str, found: Mapping[int, Mapping[str, str]], asked: str | None, first_port: int) -> ChosenStore:
    """What is asked for, else what the directory had. ChosenStoreError when it is another one: the metadata would be
    left behind."""
    there = _kept(data_dir, found[1]) if 1 in found else None
    if asked is None:
        return there or ChosenStore()
    wanted = _wanted(checked(asked), there, first_port)
    if there is not None and wanted != there:
        raise ChosenStoreError(
            f"{asked}: {data_dir} holds a cluster whose metadata is in {_described(there)}, and would be without it:"
            f" leave --store out, or use another --data-dir"
        )
    return wanted


def _kept(data_dir: str, properties: Mapping[str, str]) -> ChosenStore:
    connect = properties.get(CONNECT)
    if properties.get(STORE, STORE_EMBEDDED) == STORE_EMBEDDED or connect is None:
        return ChosenStore()
    if not os.path.isdir(os.path.join(data_dir, FOLDER)):
        return ChosenStore(connect=connect)
    port = connect.rpartition(":")[2]
    if connect != f"{HOST}:{port}" or not port.isdecimal():
        raise ChosenStoreError(
            f"broker-1.properties has {CONNECT}={connect}, and {data_dir} has a server of its own: expected {HOST}:PORT"
        )
    return ChosenStore(connect=connect, port=int(port))


def _wanted(asked: str, there: ChosenStore | None, first_port: int) -> ChosenStore:
    if asked == STORE_EMBEDDED:
        return ChosenStore()
    if asked != ZOOKEEPER:
        return ChosenStore(connect=asked)
    if there is not None and there.port is not None:
        return there
    port = next(first_port + after for after in PORT_AFTER if 1 <= first_port + after <= LAST_PORT)
    return ChosenStore(connect=f"{HOST}:{port}", port=port)


def _described(store: ChosenStore) -> str:
    if store.connect is None:
        return "its own directories"
    return "its own ZooKeeper server" if store.port is not None else store.connect
