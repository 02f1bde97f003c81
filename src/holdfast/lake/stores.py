"""Which store a location names, and whether that one keeps its word.

Owns the list of places that were tried. A place that is not in it is refused by name: fsspec has a create-if-absent for
all of them, which for most looks first and writes then, so that two writers both win.
"""

import secrets

from holdfast.lake.errors import AlreadyThereError, StoreError
from holdfast.lake.local_store import LocalStore
from holdfast.lake.s3_store import S3Store
from holdfast.lake.store import Store


def store_of(location: str) -> Store:
    """StoreError for a scheme that no table is kept in."""
    scheme, found, rest = location.partition("://")
    if not found:
        return LocalStore(location)
    if scheme == "file":
        return LocalStore("/" + rest.lstrip("/"))
    if scheme in ("s3", "s3a"):
        if not rest.strip("/"):
            raise StoreError(f"location {location!r} names no bucket: expected s3://BUCKET/FOLDER")
        return S3Store(f"s3://{rest}")
    if scheme in ("hdfs", "viewfs"):
        raise StoreError(f"location {location!r}: HDFS is untried, and nothing is written to it untried")
    raise StoreError(f"location {location!r}: expected a directory, file:// or s3://, not {scheme}://")


def prove(store: Store) -> None:
    """Makes one name twice: StoreError if the second is not refused, or if what the first wrote has changed.

    For a place that no table is in yet. Three requests, and nothing is left.
    """
    path = f"_holdfast/probe-{secrets.token_hex(6)}"
    store.create(path, b"first")
    try:
        store.create(path, b"second")
    except AlreadyThereError:
        taken = False
    else:
        taken = True
    try:
        content = store.read(path)
    finally:
        store.remove(path)
    if taken or content != b"first":
        raise StoreError(
            f"{store.location} does not refuse to make a file that is there (create-if-absent): two writers would "
            "both win. Use a store that has conditional writes"
        )
