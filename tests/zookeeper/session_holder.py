"""A process with one session, for tests that kill or stop it: session_holder.py SERVERS PATH.

Makes PATH, ephemeral, and says its session id. Then each line that it reads is a node to make; it says what became of
it: ``done`` or the name of the error, and ``EXPIRED`` by itself when it hears of it.
"""

from __future__ import annotations

import sys

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.zookeeper_client import Create, SessionState
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings


def say(text: str) -> None:
    print(text, flush=True)


def main(servers: str, path: str) -> None:
    client = KazooZooKeeper(ZooKeeperSettings(servers=servers, session_timeout_ms=3000))
    client.listen(lambda state: say("EXPIRED") if state is SessionState.EXPIRED else None)
    client.start(30)
    client.write([Create(path=path, ephemeral=True)]).result(30)
    say(str(client.session_id))
    for line in sys.stdin:
        error = client.write([Create(path=line.strip())]).exception(30)
        say("done" if error is None else type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
