"""Makes docs/commands.md, the reference of every command, from the code of the command line."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.main import main as holdfast

PAGE = Path(__file__).parent.parent / "docs/commands.md"

HEAD = """# Every command

Made from the code by `make docs`; do not edit. A test fails when it is old. `holdfast COMMAND --help` says the same at
a terminal.

Exit codes: 0 done; 1 it could not be done, with why on standard error; 2 wrong usage; 130 after Ctrl-C. A command that
has others says so below.

| environment variable | |
|---|---|
| `HOLDFAST_BOOTSTRAP_SERVER` | what `--bootstrap-server` is where it is not given |
| `HOLDFAST_LOG_LEVEL` | from which level on a broker writes lines to its log ([events](events.md)) |

A shell completes commands and options with

```sh
eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)"    # or zsh_source, fish_source
```
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    context = click.Context(holdfast, info_name="holdfast", **holdfast.context_settings)
    for name in holdfast.list_commands(context):
        lines += _command(context, name, 2)
    return "\n".join(lines).rstrip() + "\n"


def _command(parent: click.Context, name: str, level: int) -> Iterator[str]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None, name
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}\n"
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            yield from _command(context, each, level + 1)


def _paragraphs(text: str) -> Iterator[str]:
    """Of a docstring; one that is not to be wrapped stands as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph.removeprefix(chr(8) + chr(10))}\n```\n"
        elif paragraph.strip():
            yield _escaped(" ".join(paragraph.split())) + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not record[1] or "--help" in parameter.opts:
            continue
        variable = parameter.envvar
        more = (
            f" Environment: `{variable}`."
            if isinstance(variable, str) and f"env var: {variable}" not in record[1]
            else ""
        )
        rows.append(f"| `{record[0].replace('|', chr(92) + '|')}` | {_escaped(' '.join(record[1].split()))}{more} |")
    if rows:
        yield "| option | |\n|---|---|"
        yield from rows
        yield ""


def _escaped(text: str) -> str:
    """Markdown that reads as the text does, but for `code`, which is meant."""
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        for mark in ("\\", "*", "_", "<", "|", "["):
            parts[index] = parts[index].replace(mark, "\\" + mark)
    for index in range(1, len(parts), 2):
        parts[index] = parts[index].replace("|", "\\|")
    return "`".join(parts)


def main() -> int:
    """See the module's docstring."""
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
