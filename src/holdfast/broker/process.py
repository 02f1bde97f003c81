"""The process of one broker, from its properties file to its exit code.

Owns what belongs to the process and not to the node: signals, the log, the limit of open files, the garbage collector,
and what is said on standard error when it cannot start. The node is app.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys

from holdfast.broker.app import Broker
from holdfast.broker.certificates import first_shown
from holdfast.broker.closer import Closer
from holdfast.broker.identity import identify
from holdfast.broker.log_lines import LogLines, configure_logging, name_broker, start_writing, without_log_file
from holdfast.broker.platform import Platform
from holdfast.broker.properties_file import oddities
from holdfast.broker.turn_order import TurnOrder, ordered_loop
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.model.config_notes import ineffective, open_to_strangers
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.log_events import LogEvent, told

log = logging.getLogger(__name__)

_STOPS = (signal.SIGTERM, signal.SIGINT)


def _raise_file_limit() -> None:
    """Every written log keeps a descriptor open: take what the system gives this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as e:
            log.warning("open files stay limited to %d: %s", soft, e)


def _tune_garbage_collection() -> None:
    """What was made at start stays: the collector need not look at it again (measured at p99)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _main(
    config: BrokerConfig, ready_fd: int | None, closer: Closer | None, own_file: str | None, turn_order: TurnOrder
) -> int:
    platform = dataclasses.replace(Platform.real(closer), turn_order=turn_order)
    if closer is not None:
        closer.watch(asyncio.get_running_loop())
    identified = await _identified(config, platform)
    if identified is None:
        return 0
    broker = Broker(identified, platform)
    broker.properties_path = own_file
    for number in _STOPS:
        broker.loop.add_signal_handler(number, broker.stopping.set)
    starting = broker.loop.create_task(broker.start())
    stopping = broker.loop.create_task(broker.stopping.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        log.info("broker %d serves", broker.broker_id, extra=told(LogEvent.BROKER_STARTED, broker=broker.broker_id))
        _tune_garbage_collection()
        if ready_fd is not None:
            os.write(ready_fd, b"1")  # it stays open: its end is the news of our death
    else:
        starting.cancel()
        if broker.exit_code or not hasattr(broker, "membership"):
            return broker.exit_code
    await stopping
    await broker.stop()
    ended = told(LogEvent.BROKER_STOPPED, broker=broker.broker_id, exit_code=broker.exit_code)
    log.info("broker %d has stopped", broker.broker_id, extra=ended)
    return broker.exit_code


async def _identified(config: BrokerConfig, platform: Platform) -> BrokerConfig | None:
    """The configuration with the broker's id; None: the process was told to end before that was known."""
    if config.given_id is not None:
        return config
    first_shown(config, platform.wall_s())  # ConfigError: nobody would tell it its id
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in _STOPS:
        loop.add_signal_handler(number, stopping.set)
    identifying = loop.create_task(identify(config, platform))
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait([identifying, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not identifying.done():
        identifying.cancel()
        return None
    identified = identifying.result()
    name_broker(identified.node_id)
    return identified


def run_broker(
    config_path: str,
    *,
    ready_fd: int | None = None,
    closer: Closer | None = None,
    keep_log_dirs: bool = False,
    log_path: str | None = None,
) -> int:
    """Run one node until SIGTERM or SIGINT; the process's exit code.

    ``keep_log_dirs``: log.dirs of the file follow what is added and removed while the node runs. ``log_path``: the file
    that standard output and standard error lead to; the log is kept there, whatever log.file says.

    ``ready_fd`` gets one byte when the node is registered and serves, and ends with the process. Raises nothing:
    what keeps it from starting is one line on standard error. ``closer``: one that was started before this module was
    loaded; otherwise it is started here.
    """
    lines: LogLines | None = None
    try:
        with open(config_path, encoding="utf-8") as file:
            text = file.read()
        config = BrokerConfig.parse(read_properties(text))
        lines = configure_logging(config, log_path)
        for line in oddities(text, config):
            log.warning("%s: %s", config_path, line)
        for line in (*ineffective(config), *open_to_strangers(config), *without_log_file(config, log_path)):
            log.warning("%s", line)
        _raise_file_limit()
        closer = closer or Closer.start()  # which needs a process without other threads
        start_writing()
        loop, turn_order = ordered_loop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(_main(config, ready_fd, closer, config_path if keep_log_dirs else None, turn_order))
    except OSError as e:
        _say(lines, f"{e.filename or config_path}: {e.strerror or e}")
    except UnicodeDecodeError as e:
        _say(lines, f"{config_path} is no text: {e}")
    except (ConfigError, HoldfastError) as e:
        _say(lines, str(e))
    finally:
        if closer is not None:
            closer.end()
        if lines is not None:
            lines.flush()
    return 1


def _say(lines: LogLines | None, what: str) -> None:
    """Why it does not run: once on standard error, and as an event where the log is a file, or for machines. In turn
    with the log lines: that may be a file on a disk that hangs."""
    if lines is not None and lines.is_for_people:
        lines.say(f"holdfast broker: {what}")
        return
    if lines is not None:
        log.critical("%s", what, extra=told(LogEvent.BROKER_FAILED, reason=what))
    if lines is None or lines.leads_elsewhere:
        print(f"holdfast broker: {what}", file=sys.stderr)
