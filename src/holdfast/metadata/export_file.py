"""All of a cluster's metadata in one file: what ``holdfast metadata export`` writes and ``import`` reads. Pure.

    {"version": 1, "kind": "holdfast metadata export", "cluster_id": ..., "exported_ms": ..., "end_offset": ...,
     "metadata": {"topic orders": {"id": ...}, ...}, "records": ["base64", ...]}

``metadata`` is the listing that ``dump --json`` has, for people and for ``diff``; ``records`` is what is imported: a
snapshot. The two have to say the same, so that a file of which one half was changed is found out.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import Any, Final

from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.listing import VERSION, difference_lines, differences, listing
from holdfast.model.errors import HoldfastError, MetadataError
from holdfast.model.types import TimestampMs

KIND: Final = "holdfast metadata export"


def to_text(image: ClusterImage, now_ms: TimestampMs) -> str:
    """The file."""
    document = {
        "version": VERSION,
        "kind": KIND,
        "cluster_id": image.cluster_id,
        "exported_ms": now_ms,
        "end_offset": image.next_offset,
        "metadata": listing(image),
        "records": [base64.b64encode(encode_record(record)).decode() for record in image.to_records()],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def of_text(where: str, text: str) -> ClusterImage:
    """The image. MetadataError names ``where`` and what was expected there."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise MetadataError(f"{where} is no JSON: {e}: expected a file of `holdfast metadata export`") from e
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise MetadataError(f"{where}: expected a file of `holdfast metadata export`")
    if found.get("version") != VERSION:
        raise MetadataError(f"{where}: version {found.get('version')!r}: expected {VERSION}")
    cluster_id, end, records = found.get("cluster_id"), found.get("end_offset"), found.get("records")
    if not isinstance(cluster_id, str) or type(end) is not int or not isinstance(records, list):
        raise MetadataError(f"{where}: expected cluster_id, end_offset and records")
    image = ClusterImage.empty(cluster_id)
    try:
        decoded = [decode_record(base64.b64decode(each, validate=True)) for each in records]
        image, _ = image.apply(decoded, end - len(decoded))
    except (HoldfastError, binascii.Error, TypeError, ValueError) as e:
        raise MetadataError(f"{where}: records cannot be read: {e}") from e
    image = replace(image, offset=end - 1 if end else None)
    different = differences(listing(image), found.get("metadata") or {})
    if different:
        raise MetadataError(
            f"{where}: its records and its metadata differ in {len(different)} things, as {_first(different)}: "
            "expected the file as `holdfast metadata export` wrote it"
        )
    return image


def _first(different: Any) -> str:
    return next(difference_lines(different[0]))
