"""Commands of the command line, as a test finds them without running one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.main import main as holdfast


def command_at(path: Sequence[str]) -> tuple[click.Command, click.Context]:
    """The command and the context of the group it is in, as a run of the program makes it: without those above it
    a context knows no ``-h``."""
    command: click.Command = holdfast
    context = click.Context(holdfast, info_name="holdfast", **holdfast.context_settings)
    for number, name in enumerate(path):
        assert isinstance(command, click.Group), path
        if number:
            context = click.Context(command, info_name=path[number - 1], parent=context)
        found = command.get_command(context, name)
        assert found is not None, path
        command = found
    return command, context
