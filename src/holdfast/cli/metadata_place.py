"""Where a cluster keeps its metadata, by the properties of its brokers: what every ``holdfast metadata`` command asks.

Owns the options --data-dir and --config, and what they mean together. Opens nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

import click

from holdfast.cli import layout
from holdfast.coordination.metadata_copy import MetadataCopy
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.storage.files import OsFiles
from holdfast.storage.stored_ids import known_id

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPlace:
    """Where a cluster keeps things, by the properties of its brokers."""

    metadata_dirs: tuple[str, ...]
    log_dirs: dict[int, tuple[str, ...]]
    witnesses: tuple[str, ...]
    """What keeps notes of which copies are good: the log directories, or ``metadata.witness.dirs``."""
    properties: Mapping[str, Mapping[str, str]]
    """By the file that they are from."""

    @property
    def all_log_dirs(self) -> list[str]:
        return [path for paths in self.log_dirs.values() for path in paths]

    def copies(self) -> list[MetadataCopy]:
        return [MetadataCopy(path, OsFiles(), now_ms, uuid4) for path in self.metadata_dirs]


def now_ms() -> int:
    """Since 1970."""
    return time.time_ns() // 1_000_000


def place_of(data_dir: str | None, configs: Sequence[str]) -> MetadataPlace:
    """click's errors for what cannot be read."""
    files: dict[str, Mapping[str, str]] = {}
    try:
        for path in configs:
            with open(path, encoding="utf-8") as file:
                files[path] = read_properties(file.read())
        if data_dir is not None:
            os.listdir(data_dir)
            home = os.path.abspath(data_dir)
            files |= {layout.properties_path(home, number): p for number, p in sorted(layout.kept(home).items())}
    except OSError as e:
        raise click.ClickException(f"{e.filename}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise click.ClickException(f"{path}: {e}: expected a text in UTF-8") from e
    except (ConfigError, layout.LayoutError) as e:
        raise click.ClickException(str(e)) from e
    if not files:
        raise click.UsageError("give --data-dir DIR of `holdfast up`, or --config FILE for each broker")
    metadata: list[str] = []
    log_dirs: dict[int, tuple[str, ...]] = {}
    witnesses: list[str] = []
    for path, properties in files.items():
        try:
            config = BrokerConfig.parse(properties)
        except ConfigError as e:
            raise click.ClickException(f"{path}: {e}") from e
        metadata += [each for each in map(os.path.abspath, config.metadata_log_dirs) if each not in metadata]
        try:
            broker_id = known_id(config.given_id, config.log_dirs, OsFiles())
        except HoldfastError as e:
            raise click.ClickException(f"{path}: {e}") from e
        if broker_id is None:  # its directories are empty or cannot be read: whose they are makes no difference
            broker_id = -1 - len(log_dirs)
        log_dirs[broker_id] = tuple(map(os.path.abspath, config.log_dirs))
        witnesses += map(os.path.abspath, config.metadata_witness_dirs)
    return MetadataPlace(
        metadata_dirs=tuple(metadata), log_dirs=log_dirs, witnesses=tuple(dict.fromkeys(witnesses)), properties=files
    )


_DATA_DIR = click.option("--data-dir", type=click.Path(file_okay=False), help="The directory of `holdfast up`.")
_CONFIG = click.option(
    "--config", "configs", type=click.Path(dir_okay=False), multiple=True, help="A broker's properties; repeatable."
)


def place_options(command: F) -> F:
    """--data-dir and --config: parameters ``data_dir`` and ``configs``."""
    return _DATA_DIR(_CONFIG(command))
