"""``holdfast segments``: what the files of a log directory hold."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.failing import Failed, Misused, OneLineGroup

PROBLEMS_TOLD = 20
"""Of damaged files; the rest is counted."""


@click.group(cls=OneLineGroup)
def segments() -> None:
    """The files of a log directory."""


@segments.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE_OR_DIR...", type=click.Path(path_type=Path))
@click.option("--records", is_flag=True, help="Show the records of each batch, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def dump(paths: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Show what segment files hold: batches, entries of indexes, aborted transactions, producers.

    FILE is a .log, .index, .timeindex, .txnindex or .snapshot, DIR the directory of a replica. It only reads, and works
    beside a running broker and on a disk that was taken out. Lines are those of kafka-dump-log.sh.

    Exit code 0: all of it could be read, 1: something is damaged, or is not there. Half a batch at the end of a file is
    no damage: it may be written just now.
    """
    from holdfast.cli.segment_rows import files_of

    try:
        files = [each for path in paths for each in files_of(path)]
    except ValueError as e:
        raise Misused(str(e)) from e
    problems = Problems()
    for line in _lines(files, records, as_json, problems):
        sys.stdout.write(line + "\n")
    if problems.told:
        raise Failed(*problems.told, *([f"and {problems.more} more"] if problems.more else []))


class Problems:
    """The first ones, and how many more there are."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.more = 0

    def add(self, text: str) -> None:
        if len(self.told) < PROBLEMS_TOLD:
            self.told.append(text)
        else:
            self.more += 1


def _lines(files: list[Path], records: bool, as_json: bool, problems: Problems) -> Iterator[str]:
    from holdfast.cli.segment_lines import line_of, object_of
    from holdfast.cli.segment_rows import Damage, rows_of
    from holdfast.storage.segment_names import LOG, offset_of

    for path in files:
        name = str(path)
        if not as_json:
            yield f"Dumping {name}"
            if path.suffix == LOG:
                yield f"Log starting offset: {offset_of(path.name, LOG)}"
        try:
            for row in rows_of(path, records=records):
                if isinstance(row, Damage):
                    problems.add(f"{name}: {row.text}")
                line = object_of(row, name) if as_json else line_of(row, name)
                if line is not None:
                    yield line
        except OSError as e:  # of this file: what cannot be written is raised where it is written
            problems.add(f"{name}: {e.strerror or e}")
