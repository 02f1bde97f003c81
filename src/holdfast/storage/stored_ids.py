"""Which broker log directories are of, as their meta.properties say."""

import os
from collections.abc import Iterable

from holdfast.metadata.broker_ids import own_id
from holdfast.model.errors import InconsistentMetaPropertiesError
from holdfast.model.types import BrokerId
from holdfast.storage.files import FileSystem
from holdfast.storage.log_dir import META_PROPERTIES, read_meta_properties


def stored_id(files: FileSystem, log_dir: str) -> BrokerId | None:
    """The id in a log directory; None where there is none. OSError; InconsistentMetaPropertiesError for one that is no
    number."""
    path = f"{log_dir}/{META_PROPERTIES}"
    found = read_meta_properties(files, path) or {}
    text = found.get("node.id", found.get("broker.id"))
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 2**31):
        raise InconsistentMetaPropertiesError(f"{path} is of node {text!r}: expected a number of 0 to {2**31 - 1}")
    return int(text)


def known_id(given: BrokerId | None, log_dirs: Iterable[str], files: FileSystem) -> BrokerId | None:
    """The id of a broker that has run, for commands beside it: the given one, or that of its log directories; None when
    those that can be read have none. InconsistentMetaPropertiesError when they do not agree."""
    if given is not None:
        return given
    ids: dict[str, BrokerId | None] = {}
    for path in map(os.path.abspath, log_dirs):
        try:
            ids[f"{path}/{META_PROPERTIES}"] = stored_id(files, path)
        except OSError:
            continue
    return own_id(None, ids)
