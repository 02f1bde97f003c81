"""What pyiceberg does with a table's metadata at each commit, at a cost that does not grow with the table.

pyiceberg 0.12 copies all metadata deeply for every look at a transaction (18 a commit) and again in its catalogs, with
every snapshot of the table; and whoever asks what all snapshots name reads each manifest list and manifest anew. A
table of 600 snapshots spends nine tenths of a commit on that.
"""

from collections.abc import Callable, Iterable
from typing import Any


def transaction(table: Any) -> Any:
    """A transaction of ``table`` that copies the table's metadata once per staged change, and no snapshot at all."""
    from pyiceberg.table import Transaction

    _share_what_never_changes()

    class Once(Transaction):  # type: ignore[misc]
        seen: tuple[Any, Any, Any] = (None, None, None)

        @property
        def table_metadata(self) -> Any:
            metadata, updates, copied = self.seen
            if metadata is not self._table.metadata or updates is not self._updates:
                copied = super().table_metadata
                self.seen = (self._table.metadata, self._updates, copied)
            return copied

    return Once(table)


def _share_what_never_changes() -> None:
    """A deep copy of metadata has the same snapshots and log entries, not copies of them: they are frozen models."""
    from pyiceberg.table.metadata import MetadataLogEntry, SnapshotLogEntry
    from pyiceberg.table.snapshots import Snapshot

    for kind in (Snapshot, SnapshotLogEntry, MetadataLogEntry):
        if kind.model_config.get("frozen") and "__deepcopy__" not in vars(kind):
            kind.__deepcopy__ = _itself


def _itself(value: Any, memo: Any = None) -> Any:
    return value


class NamedFiles:
    """The files that snapshots name. Lists and manifests are never written again: each is read once.

    Kept is what the snapshots of the last question named, so no more than the table has. ``path_of``: how a file's
    URL is told.
    """

    def __init__(self, path_of: Callable[[str], str]) -> None:
        self._path_of = path_of
        self._manifests: dict[str, tuple[Any, ...]] = {}
        self._data: dict[str, frozenset[str]] = {}

    def metadata_files(self, snapshots: Iterable[Any], io: Any) -> set[str]:
        """Manifest lists and manifests. FileNotFoundError if one is gone."""
        kept = {}
        for snapshot in snapshots:
            at = snapshot.manifest_list
            kept[at] = self._manifests[at] if at in self._manifests else tuple(snapshot.manifests(io))
        self._manifests = kept
        found = {self._path_of(at) for at in kept}
        found.update(self._path_of(each.manifest_path) for manifests in kept.values() for each in manifests)
        return found

    def data_files(self, snapshots: Iterable[Any], io: Any) -> frozenset[str]:
        """Data files of any of the snapshots. FileNotFoundError if a list or a manifest is gone."""
        self.metadata_files(snapshots, io)
        kept: dict[str, frozenset[str]] = {}
        for manifests in self._manifests.values():
            for manifest in manifests:
                at = manifest.manifest_path
                if at not in kept:
                    kept[at] = self._data[at] if at in self._data else self._files_in(manifest, io)
        self._data = kept
        return frozenset().union(*kept.values())

    def _files_in(self, manifest: Any, io: Any) -> frozenset[str]:
        entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        return frozenset(self._path_of(entry.data_file.file_path) for entry in entries)
