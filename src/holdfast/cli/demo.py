"""``holdfast demo``: the whole system on real data, with a death in the middle, and a verdict.

    cluster up --> load ---- half acked: kill -9 of the controller, start it again --> all acked
                   lake pipeline lands what is there, again and again ----------> all landed --> aggregates
                                                                     --> audit --> comparison --> verdict

Owns the order of things and what is measured. What is compared stands in demo_report.py, Spark's part in
demo_pipeline.py, the records and their ledger in demo_flights.py and demo_ledger.py. Knows the brokers only as any
client does.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import demo_flights
from holdfast.cli.demo_compare import Delays, compare
from holdfast.cli.demo_ledger import Load
from holdfast.cli.demo_picture import heat_map
from holdfast.cli.demo_pipeline import Pipeline
from holdfast.cli.demo_report import Death, LostDisk, LostHost, Outcome, differences, summary
from holdfast.java.runtime import JavaNotFoundError
from holdfast.java.zookeeper import ZooKeeperUnavailableError
from holdfast.testing import Cluster, ClusterError, DiskFaultUnavailable, HostCluster, HostsUnavailable, wait_for

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

TOPIC, PARTITIONS, COPIES = "flights", 6, 3
RATE_PER_S = 25_000
"""Slow enough that the pipeline runs meanwhile and there is something to interrupt; all of it in a quarter minute."""
THREE = "3 brokers with 2 log directories each"
MARK = ".holdfast-demo"
"""Says that a directory was made by the demo and may be emptied by the next one."""
ACKS_BEFORE_RETURN = 20_000
LIMIT_S = 120.0


UNAVAILABLE = (HostsUnavailable, DiskFaultUnavailable, JavaNotFoundError, ZooKeeperUnavailableError)
"""What hosts need and this machine does not have."""


class DemoError(click.ClickException):
    """The demo could not run to its end."""


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    default="demo-data",
    show_default=True,
    help="Where the cluster and the lake are kept; emptied first if an earlier demo has made it.",
)
@click.option(
    "--lose-a-disk",
    "lose_a_disk",
    is_flag=True,
    help="Instead of the kill -9: the disk of the leader of flights-0 dies, and is healed without a restart.",
)
@click.option(
    "--hosts",
    is_flag=True,
    help="On three hosts, as namespaces of this machine, each with a broker and a ZooKeeper server; instead of the"
    " kill -9 the controller's host is powered off. Needs root.",
)
def demo(data_dir: str, lose_a_disk: bool, hosts: bool) -> None:
    """The whole thing on real data: cluster, load, lake, a kill -9, audit.

    Three brokers with two log directories each take the 336,776 flights that left New York in 2013 while Spark lands
    them in an Iceberg table at DIR/lake/flights; the controller is killed half way and started again; every replica is
    audited. Ends with exit code 1 if any number differs from any other.
    """
    from rich.console import Console

    if lose_a_disk and hosts:
        raise click.UsageError("--lose-a-disk and --hosts: expected one of them, as one thing is lost in a run")
    console = Console(highlight=False)
    directory = prepare(os.path.abspath(data_dir))
    # A stop from outside unwinds like Ctrl-C: brokers and Spark end with the demo.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = Demo(directory, console, lose_a_disk=lose_a_disk, hosts=hosts)
    try:
        outcome = run.run()
    except UNAVAILABLE as error:
        raise DemoError(f"--hosts cannot run here: {error}") from error
    except (ClusterError, TimeoutError, demo_flights.NoFlightsError) as error:
        raise DemoError(str(error)) from error
    console.print(summary(outcome))
    found = differences(outcome)
    for line in found:
        console.print(f"[red]differs:[/red] {line}")
    if found:
        sys.exit(1)
    console.print(f"A picture of what landed: {run.picture}", soft_wrap=True)
    what = "Files of the lake" if lose_a_disk or hosts else "Files of the cluster and the lake"
    console.print(f"Everything is equal. {what}: {directory}", soft_wrap=True)


def prepare(directory: str) -> str:
    """An empty directory; one that something else has filled is refused."""
    if os.path.isdir(directory) and os.listdir(directory):
        if not os.path.exists(os.path.join(directory, MARK)):
            raise DemoError(f"{directory} is not empty and was not made by a demo: name another one with --data-dir")
        shutil.rmtree(directory)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, MARK), "w") as mark:
        mark.write("made by holdfast demo; the next demo removes everything here\n")
    return directory


class Demo:
    """One run."""

    def __init__(self, directory: str, console: Console, *, lose_a_disk: bool = False, hosts: bool = False) -> None:
        self.directory, self.console = directory, console
        self.lose_a_disk, self.hosts = lose_a_disk, hosts
        self.how = ""
        self.picture = ""
        self.started_s = time.monotonic()

    def say(self, line: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self.started_s:6.1f} s[/dim]  {line}", soft_wrap=True)

    def run(self) -> Outcome:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        file = demo_flights.path()
        with ExitStack() as ending:
            cluster = self.cluster(ending)
            where = "3 hosts, a broker with 2 disks and a ZooKeeper server on each" if self.hosts else THREE
            self.say(f"{where}: {cluster.bootstrap}")
            create_topic(cluster)
            self.say(f"starting Spark; then {demo_flights.FLIGHTS:,} flights, at most {RATE_PER_S:,} a second")
            with Pipeline(cluster.bootstrap, self.directory, TOPIC) as pipeline:
                with Progress(*columns, console=self.console) as progress:
                    load, blow = self.load_and_strike(cluster, pipeline, file, progress)
                self.say("Spark aggregates the topic: delay per carrier and per hour")
                by_carrier, by_hour = pipeline.aggregates()
                self.say("auditing every replica on disk")
                audit = pipeline.audit()
            self.say("comparing what landed with the table, flight by flight")
            landed = compare(pipeline.lake, load.ledger, file)
            self.picture = self.draw(landed.delays)
            return Outcome(
                flights=demo_flights.FLIGHTS,
                sent=load.ledger.sent,
                acked=load.ledger.acked,
                failed=len(load.ledger.failures),
                duplicate_places=load.ledger.duplicates(),
                in_log=audit.end_offsets,
                landed=landed.rows,
                landed_bad=pipeline.bad_records(),
                landed_different=landed.different,
                orphans=landed.orphans,
                blow=blow,
                audited_partitions=audit.partitions,
                audited_replicas=audit.replicas,
                audited_records=audit.records,
                audit_differences=audit.differences,
                by_carrier=by_carrier,
                by_carrier_truth=landed.by_carrier,
                by_hour=by_hour,
                by_hour_truth=landed.by_hour,
                seconds=time.monotonic() - self.started_s,
            )

    def draw(self, delays: Delays) -> str:
        """A picture of what landed; its path."""
        path = os.path.join(self.directory, "delays.svg")
        with open(path, "w") as file:
            file.write(heat_map(delays, f"{demo_flights.FLIGHTS:,} flights from New York, 2013, as they landed"))
        return path

    def cluster(self, ending: ExitStack) -> Cluster | HostCluster:
        """Running; ends with ``ending``."""
        if self.hosts:
            from holdfast.cli.demo_hosts import host_cluster

            return ending.enter_context(host_cluster())
        if not self.lose_a_disk:
            return ending.enter_context(
                Cluster(data_dir=os.path.join(self.directory, "cluster"), brokers=3, log_dirs=2)
            )
        from holdfast.cli.demo_disk import start_cluster

        cluster, self.how = start_cluster(3, 2, self.say)
        ending.push(cluster)
        return cluster

    def load_and_strike(
        self, cluster: Cluster | HostCluster, pipeline: Pipeline, file: str, progress: Progress
    ) -> tuple[Load, Death | LostDisk | LostHost]:
        """Writes everything, kills the controller, a disk or a host half way, returns when all has landed."""
        from holdfast.cli.demo_hosts import PATIENCE

        settings = PATIENCE if self.hosts else None
        chunks = demo_flights.chunks(file)
        load = Load(cluster.bootstrap, TOPIC, chunks, rate_per_s=RATE_PER_S, settings=settings)
        bars = Bars(progress, load, pipeline)
        load.start()
        pipeline.start()
        try:
            bars.wait_until(lambda: load.ledger.acked * 2 >= demo_flights.FLIGHTS)
            blow = self.strike(cluster, load, bars)
            bars.wait_until(lambda: not load.is_alive())
            pipeline.finish(load.ledger.acked)
            bars.wait_until(lambda: not pipeline.running)
        finally:
            load.stop()
        if load.error is not None:
            raise DemoError(f"the load ended early: {load.error}")
        return load, blow

    def strike(self, cluster: Cluster | HostCluster, load: Load, bars: Bars) -> Death | LostDisk | LostHost:
        if isinstance(cluster, HostCluster):
            from holdfast.cli.demo_hosts import HostLoss

            host_loss = HostLoss(cluster, TOPIC, self.say)
            return host_loss.happen(load.ledger, demo_flights.FLIGHTS, bars.wait_until, lambda: is_in_sync(cluster))
        if not self.lose_a_disk:
            return self.kill_the_controller(cluster, load, bars)
        from holdfast.cli.demo_disk import DiskLoss

        loss = DiskLoss(cluster, TOPIC, self.how, self.say)
        return loss.happen(load.ledger, demo_flights.FLIGHTS, bars.wait_until, lambda: is_in_sync(cluster))

    def kill_the_controller(self, cluster: Cluster, load: Load, bars: Bars) -> Death:
        view = cluster.describe([TOPIC])
        victim = view.controller_id
        if victim is None:
            raise DemoError("no broker says that it is the controller")
        led = [partition for (_, partition), seen in view.partitions.items() if seen.leader == victim]
        killed_s = time.monotonic()
        cluster.kill(victim)
        self.say(f"[red]kill -9[/red] of broker {victim}: the controller, leader of partitions {led}")
        acked = load.ledger.acked
        bars.wait_until(lambda: load.ledger.acked >= min(acked + ACKS_BEFORE_RETURN, demo_flights.FLIGHTS))
        successor = cluster.describe([]).controller_id
        self.say(f"broker {successor} is the controller; starting broker {victim} again")
        returned_s = time.monotonic()
        cluster.revive()
        bars.wait_until(lambda: is_in_sync(cluster))
        back_s = time.monotonic() - returned_s
        self.say(f"broker {victim} is in sync again, {back_s:.1f} s after its start")
        return Death(
            broker=victim,
            was_controller=successor != victim,
            next_controller=successor,
            pause_s=load.ledger.longest_pause_s(killed_s, led),
            back_in_sync_s=back_s,
        )


class Bars:
    """The two progress bars, moved while something is waited for."""

    def __init__(self, progress: Progress, load: Load, pipeline: Pipeline) -> None:
        self.progress, self.load, self.pipeline = progress, load, pipeline
        self.acked = progress.add_task("acknowledged by all", total=demo_flights.FLIGHTS)
        self.landed = progress.add_task("landed in Iceberg", total=demo_flights.FLIGHTS)

    def wait_until(self, condition: Any) -> None:
        """Moves the bars until the condition holds; an error of load or pipeline ends the wait."""

        def look() -> bool:
            self.progress.update(self.acked, completed=self.load.ledger.acked)
            self.progress.update(self.landed, completed=self.pipeline.landed())
            for error in (self.load.error, self.pipeline.error):
                if error is not None:
                    raise DemoError(f"{type(error).__name__}: {error} (see also {self.pipeline.log})") from error
            return bool(condition())

        wait_for(look, "the next step of the demo", timeout_s=LIMIT_S, interval_s=0.1)
        look()


def create_topic(cluster: Cluster | HostCluster) -> None:
    from holdfast.client.blocking import BlockingClient
    from holdfast.client.views import NewTopic

    with BlockingClient(cluster.bootstrap, client_id="holdfast-demo") as client:
        configs = {"min.insync.replicas": "2"}
        client.create_topic(NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=COPIES, configs=configs))
    cluster.wait_in_sync([TOPIC])


def is_in_sync(cluster: Cluster | HostCluster) -> bool:
    """Every live broker shows every replica of the topic in sync."""
    views = [cluster.describe([TOPIC], broker=broker) for broker in cluster.live()]
    return len(views) == cluster.brokers and not any(view.under_replicated for view in views)
