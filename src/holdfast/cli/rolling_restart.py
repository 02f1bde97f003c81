"""``holdfast rolling-restart``: the options, and the run that they mean; rolling.py does it."""

import datetime
import json
import os
from pathlib import Path

import click
from click.core import ParameterSource

from holdfast.cli import endpoints
from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.failing import Failed, Misused, OneLineCommand
from holdfast.cli.restart_state import RollingProgress, StateFile, begun
from holdfast.cli.restart_ways import ByCommand, ByUp, RestartWay
from holdfast.cli.rolling import Rolling, RollingLook, dry_run, look
from holdfast.client.restart_rules import bad_directories
from holdfast.model.types import BrokerId

STATE_FILE = "rolling-restart.json"


@click.command(name="rolling-restart", cls=OneLineCommand)
@bootstrap_option
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Restart the brokers of the `holdfast up` that runs there; it says where they are, too.",
)
@click.option(
    "--command",
    metavar="TEMPLATE",
    help="Run this by the shell for each broker, with {broker}, {host} and {port} filled in: it has to restart it.",
)
@click.option("--broker", "brokers", type=int, multiple=True, metavar="ID", help="Only this one; repeatable.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1.0),
    default=600.0,
    show_default=True,
    help="Seconds to wait until it is safe, and for a restart.",
)
@click.option(
    "--accept-unavailable",
    is_flag=True,
    help="Restart also brokers without which a partition has too few replicas: nobody can write to it meanwhile.",
)
@click.option(
    "--state",
    "state_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where a run remembers how far it came.  [default: DIR/rolling-restart.json; with --command "
    "~/.local/state/holdfast/rolling-restart-CLUSTER.json]",
)
@click.option("--anew", is_flag=True, help="Forget an earlier run that did not come to its end.")
@click.option("--dry-run", is_flag=True, help="Show the order, and whether each could be stopped now; change nothing.")
@click.pass_context
def rolling_restart(
    ctx: click.Context,
    bootstrap: str,
    data_dir: Path | None,
    command: str | None,
    brokers: tuple[int, ...],
    timeout_s: float,
    accept_unavailable: bool,
    state_path: Path | None,
    anew: bool,
    dry_run: bool,
) -> None:
    """Restart brokers one after the other, each only when it is safe.

    Safe is: every broker is there, every partition in sync, no log directory worse than at the beginning, and
    min.insync.replicas kept everywhere with that broker stopped. The controller comes last. It stops when a disk dies
    and names it; the same command goes on with the brokers that were not restarted yet.

    Exit code 0: all were restarted and are in sync, 1: it stopped, 2: wrong usage.
    """
    if (data_dir is None) == (command is None):
        raise Misused("expected either --data-dir of `holdfast up`, or --command")
    way: RestartWay
    if data_dir is not None:
        data_dir = data_dir.absolute()
        way = ByUp(data_dir)
        if ctx.get_parameter_source("bootstrap") is not ParameterSource.COMMANDLINE:
            bootstrap = _servers_of(data_dir)
    else:
        way = ByCommand(command or "")
    seen = look(bootstrap)
    wanted = _wanted(seen, brokers)
    with StateFile(state_path or _usual_path(data_dir, seen.found.cluster_id)) as state:
        progress = None if anew else state.read()
        if progress is None:
            progress = begun(seen.found.cluster_id, wanted, bad_directories(seen.opinions[0]))
        else:
            _go_on(progress, seen, wanted if brokers else None, state)
        if dry_run:
            _show(seen, progress)
            return
        Rolling(
            bootstrap=bootstrap,
            way=way,
            state=state,
            progress=progress,
            timeout_s=timeout_s,
            accept_unavailable=accept_unavailable,
            expected=progress.brokers | frozenset(seen.found.brokers),
            nodes=dict(seen.found.brokers),
        ).run()


def _servers_of(data_dir: Path) -> str:
    path = data_dir / endpoints.FILE_NAME
    try:
        return ",".join(json.loads(path.read_text())["bootstrap"])
    except FileNotFoundError:
        raise Failed(f"{path} is not there: the cluster in {data_dir} starts or stops") from None
    except (ValueError, KeyError, TypeError) as e:
        raise Failed(f"{path}: {e}: expected where the cluster is") from e


def _wanted(seen: RollingLook, brokers: tuple[int, ...]) -> frozenset[BrokerId]:
    unknown = set(brokers) - set(seen.found.brokers)
    if unknown:
        raise Misused(f"--broker {min(unknown)}: expected one of {', '.join(map(str, sorted(seen.found.brokers)))}")
    return frozenset(brokers or seen.found.brokers)


def _usual_path(data_dir: Path | None, cluster_id: str) -> Path:
    if data_dir is not None:
        return data_dir / STATE_FILE
    home = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return home / "holdfast" / f"rolling-restart-{cluster_id}.json"


def _go_on(progress: RollingProgress, seen: RollingLook, wanted: frozenset[BrokerId] | None, state: StateFile) -> None:
    """With a run that did not come to its end; brokers that the command names count, not those of then."""
    if progress.cluster_id != seen.found.cluster_id:
        raise Failed(f"{state.path} is of cluster {progress.cluster_id}, this is {seen.found.cluster_id}: --anew")
    if wanted is not None:
        progress.brokers = wanted
    began = datetime.datetime.fromtimestamp(progress.began_ms / 1000, datetime.UTC)
    done = ", ".join(map(str, sorted(progress.done))) or "none"
    click.echo(f"Going on with the run of {began:%Y-%m-%d %H:%M:%S} UTC: restarted already: {done}")


def _show(seen: RollingLook, progress: RollingProgress) -> None:
    if not dry_run(seen, progress, click.echo):
        raise Failed("the first of them could not be stopped now")
