"""``DIR/endpoints.json``: where a cluster of ``holdfast up`` is reached, for scripts.

    {"bootstrap": ["HOST:PORT", ...], "metrics": {"1": "http://HOST:PORT/metrics", ...}, "console": "http://HOST:PORT/"}

It is there from the ``ready:`` line on until the cluster is told to stop, so whoever finds it finds a cluster that
takes writes. ``console`` is null with --no-console. Owns the file's name and form.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress

from holdfast.cli.layout import BrokerLayout, write_atomically
from holdfast.cli.up_address import HOST

FILE_NAME = "endpoints.json"


def metrics_url(node: BrokerLayout) -> str | None:
    """Where Prometheus finds the metrics of a broker; None when it serves none."""
    return f"http://{HOST}:{node.metrics_port}/metrics" if node.metrics_port else None


def tell(data_dir: str, nodes: Sequence[BrokerLayout], console: str | None) -> None:
    """The cluster takes writes."""
    pages = {str(node.broker_id): url for node in nodes if (url := metrics_url(node)) is not None}
    found = {"bootstrap": [node.address for node in nodes], "metrics": pages, "console": console}
    write_atomically(os.path.join(data_dir, FILE_NAME), json.dumps(found) + "\n")


def take_away(data_dir: str) -> None:
    """It stops, or has not started yet."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(data_dir, FILE_NAME))
