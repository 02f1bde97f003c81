"""Where the configurations of topics are kept beside the metadata."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.broker.topic_notes import TopicNotes
from holdfast.model.errors import KafkaStorageError
from holdfast.storage import topic_configs
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import META_PROPERTIES, InlineQueue, LogDir
from holdfast.storage.topic_configs import TopicConfigs


def test_what_lies_beneath_a_disk_that_was_unmounted_gets_none(tmp_path: Path) -> None:
    directory = LogDir(str(tmp_path), OsFiles(), InlineQueue())
    directory.open(node_id=1, cluster_id="c", new_id=lambda: UUID(int=7), now_ms=0)
    try:
        configs = TopicConfigs(told=(1, 2), topics={"t": {"retention.ms": "7"}})
        TopicNotes._write_to(directory, configs)
        assert topic_configs.read(directory.files, str(tmp_path)) == configs
        for name in (topic_configs.FILE_NAME, META_PROPERTIES):
            os.unlink(tmp_path / name)
        with pytest.raises(KafkaStorageError, match=META_PROPERTIES):
            TopicNotes._write_to(directory, configs)
        assert topic_configs.read(directory.files, str(tmp_path)) is None
    finally:
        directory.close()
