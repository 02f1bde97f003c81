"""The two stores of a migration, for tests: directories of this machine, and an ensemble.

Owns the directories. ``Ensemble`` may be the model or a real server: what is asked of it is a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.coordination.lanes import InlineLanes
from holdfast.coordination.migration import Side, StoreStanding, Told, Way, migrate
from holdfast.coordination.migration_embedded import Directories, EmbeddedSide
from holdfast.coordination.migration_zookeeper import ZooKeeperSide
from holdfast.coordination.zookeeper_client import ZooKeeperClient
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.moved import Moved
from holdfast.storage.files import FileSystem, OsFiles

TO_ZOOKEEPER, TO_EMBEDDED = "zookeeper", "embedded"


def silent(*_: object) -> None:
    """Nobody wants to know."""


class TwoStores:
    """``connect`` makes clients of an ensemble that are not started."""

    def __init__(self, root: Path, connect: Callable[[], ZooKeeperClient], *, files: FileSystem | None = None) -> None:
        self.copies = [str(root / f"meta-{number}") for number in (1, 2)]
        self.log_dirs = [str(root / f"log-{number}") for number in (1, 2, 3)]
        for path in self.log_dirs:
            Path(path).mkdir(parents=True, exist_ok=True)
            (Path(path) / "meta.properties").touch()
        self._connect = connect
        self.files: FileSystem = files or OsFiles()

    def store(self, broker_id: int = 1) -> EmbeddedStore:
        """As a broker has one."""
        witness = Witness(broker_id=broker_id, directories=tuple(self.log_dirs))
        return EmbeddedStore(self.copies, files=self.files, witness=witness)

    @contextmanager
    def sides(self) -> Iterator[tuple[EmbeddedSide, ZooKeeperSide]]:
        """As the command has them."""
        directories = Directories(
            copies=tuple(self.copies), witnesses=tuple(self.log_dirs), log_dirs=tuple(self.log_dirs)
        )
        embedded = EmbeddedSide(directories, files=self.files, lanes=InlineLanes())
        ensemble = ZooKeeperSide(self._connect(), "ENSEMBLE", connect_timeout_s=15)
        ensemble.start()
        try:
            embedded.lock()
            ensemble.refuse_running()
            yield embedded, ensemble
        finally:
            embedded.close()
            ensemble.close()

    def migrate(self, to: str, told: Told = silent, migration_id: str = "one") -> tuple[Way, ClusterImage]:
        with self.sides() as (embedded, ensemble):
            source, target = (embedded, ensemble) if to == TO_ZOOKEEPER else (ensemble, embedded)
            return migrate(source, target, migration_id, told)

    def standing(self) -> dict[str, StoreStanding]:
        """Of both, by the name that is given to --to."""
        with self.sides() as (embedded, ensemble):
            return {TO_EMBEDDED: embedded.standing(), TO_ZOOKEEPER: ensemble.standing()}

    def usable(self) -> list[str]:
        """Those that brokers may use and that hold something."""
        return [name for name, found in self.standing().items() if found.moved is None and not found.is_empty]

    def load(self, which: str) -> ClusterImage:
        with self.sides() as (embedded, ensemble):
            side: Side = embedded if which == TO_EMBEDDED else ensemble
            return side.load()

    def put(self, which: str, image: ClusterImage) -> None:
        """Have an empty store hold this, and be usable."""
        with self.sides() as (embedded, ensemble):
            side: Side = embedded if which == TO_EMBEDDED else ensemble
            side.begin(Moved(to="nowhere", by="put", is_whole=False), image.cluster_id, image.controller_epoch)
            side.empty()
            side.fill(image, silent)
            side.mark(Moved(to="nowhere", by="put", is_whole=True))
            side.open()
