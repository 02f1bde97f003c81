"""What a lake is asked to do, and what it says of it: values, without Spark."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.spark.lake_values import Format, NewFields


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeProgress:
    """After each batch."""

    topic: str
    batch: int
    records: int
    """Good records of this batch."""
    bad: int
    total: int
    """Good records that this run has landed so far."""
    total_bad: int
    behind: int
    """Records in the topic that have not been read yet."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Field that the table has no column for -> in how many records of this batch it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeJob:
    """What to land and where."""

    bootstrap: str
    topic: str
    to: str | Path
    """The table's location: a directory, file:// or s3://."""
    checkpoint: Path
    format: str = "parquet"
    """``delta``, ``iceberg`` or ``parquet``."""
    catalog: str | None = None
    """Of pyiceberg's configuration; without it an Iceberg table has a sqlite file beside it."""
    values: Format = "json"
    schema: str | None = None
    """Or a file with it. Of ``json`` DDL or Spark's JSON; without it that of the table, or one inferred from the first
    records. Of ``struct`` the layout (records/typed/fixed.py). Of ``avro`` the reader's schema, of ``protobuf``
    the file of a compiled descriptor set; without it the newest of the registry's subject TOPIC-value."""
    message: str = ""
    """Of ``protobuf``: the full name of the values' message."""
    registry: str = ""
    """Addresses of the schema registry that values of Avro and Protobuf begin with an id of; without it they have no
    prefix."""
    partition_by: str | None = None
    """Of a new table: ``COL`` or ``day(COL)``."""
    sample_records: int = 20_000
    time_zone: str = "UTC"
    """Of timestamps in values that name none."""
    new_fields: NewFields = "rest"
    """Of fields that the table has no column for: ``rest`` keeps their JSON in the column ``_rest``, ``add`` adds
    columns (of ``avro`` and ``protobuf`` those that the registry's newest schema has; others end the job), ``drop``
    counts them, ``fail`` ends the job before it lands the batch."""
    keep_value: bool = False
    headers: bool = False
    available_now: bool = False
    starting_offsets: str = "earliest"
    """Of partitions that the table has nothing of."""
    max_offsets_per_batch: int = 500_000
    max_bytes_per_batch: int | None = None
    """As record batches lie in the log; an estimate (the option maxBytesPerTrigger)."""
    trigger_s: float = 1.0
    fail_on_data_loss: bool = True
    """Without it, what the log has lost is noted in the table's position."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source; ``kafka.isolation.level`` is read_committed unless it is here."""
    maintain_commits: int = 50
    """Compaction, expiry and sweep after so many commits; 0: never."""
    on_progress: Callable[[LakeProgress], None] | None = None
    on_step: Callable[[str, int], None] | None = None
    """Told of each step of a batch ("planned", "written", "side commit", "side committed", "commit", "committed",
    "landed"), and of upkeep's ("rewritten", "replaced", "expired"); tests break things there."""
    on_task_step: Callable[[str], None] | None = None
    """The same in executors: "fetched", "written"."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set it to end after the batch that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeResult:
    """What one run did, and what the table has after it."""

    topic: str
    to: str
    format: str
    bad_to: str
    records: int
    """Good records that this run landed."""
    bad: int
    batches: int
    total_records: int
    """Good records that were ever landed in the table."""
    total_bad: int
    gap_offsets: int
    """Offsets that the table knows to be lost."""
    dropped: Mapping[str, int]
    schema: str
    seconds: float
