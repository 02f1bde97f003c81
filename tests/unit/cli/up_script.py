"""Runs cli/local_cluster.py with brokers of one page: they listen, answer Metadata, and stop on SIGTERM.

up_script.py DATA_DIR PORT BROKERS [BAD [STORE]]: broker BAD ends with exit code 3 instead of serving; a negative one
ignores SIGTERM. STORE is --store.
"""

import asyncio
import datetime
import os
import signal
import struct
import sys

from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseBroker
from kio.static.primitive import i32Timedelta

from holdfast.cli.layout import Options, plan, write
from holdfast.cli.local_cluster import LocalCluster, StartError, lock_directory, say
from holdfast.cli.up import local_zookeeper
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.protocol.framing import encode_response

data_dir, port, brokers, bad = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int([*sys.argv, "0"][4])
store = sys.argv[5] if len(sys.argv) > 5 else None


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            (correlation_id,) = struct.unpack_from(">i", await reader.readexactly(size), 4)
            ids = range(1, brokers + 1)
            nodes = tuple(MetadataResponseBroker(node_id=i, host="127.0.0.1", port=port + i - 1) for i in ids)
            no_time = i32Timedelta.parse(datetime.timedelta(0))
            answer = MetadataResponse(throttle_time=no_time, brokers=nodes, controller_id=1, topics=())
            writer.write(encode_response(correlation_id, answer))
    except asyncio.IncompleteReadError:
        writer.close()


async def broker(config: BrokerConfig, ready_fd: int) -> int:
    listener = config.listeners[0]
    server = await asyncio.start_server(serve, listener.host, listener.port)
    stop = asyncio.Event()
    on_term = stop.set if config.node_id != -bad else lambda: None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, on_term)
    os.write(ready_fd, b"1")
    os.close(ready_fd)
    print(f"broker {config.node_id} serves", file=sys.stderr, flush=True)
    await stop.wait()
    server.close()
    return 0


def run_broker(path: str, *, ready_fd: int, log_path: str) -> int:
    with open(path, encoding="utf-8") as file:
        config = BrokerConfig.parse(read_properties(file.read()))
    if config.node_id == bad:
        return 3
    return asyncio.run(broker(config, ready_fd))


try:
    lock_directory(data_dir)
    options = Options(brokers=brokers, log_dirs=1, port=port, settings={}, store=store, force=True)
    nodes, _ = plan(data_dir, options)
    zookeeper = local_zookeeper(data_dir, nodes[0].store)
    write(data_dir, nodes)
    sys.exit(LocalCluster(data_dir, nodes, run_broker, zookeeper).run())
except StartError as e:
    say(str(e))
    sys.exit(1)
