"""``log-dirs offline``: what is refused, asked of one real broker in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.broker.app import Broker
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import InvalidRequestError
from holdfast.storage.dir_state import DirState

START_S = 30


def taken_offline(root: Path, metadata: dict[str, str]) -> tuple[str | None, dict[str, DirState]]:
    """Take the first of two log directories offline: why it was refused, and the states afterwards."""
    first, second = root / "one", root / "two"

    async def run() -> tuple[str | None, dict[str, DirState]]:
        config = {"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{first},{second}", **metadata}
        broker = Broker(BrokerConfig.parse(config))
        async with asyncio.timeout(START_S):
            await broker.start()
        try:
            await broker.disks.offline(str(first), force=True)
            refusal = None
        except InvalidRequestError as e:
            refusal = str(e)
        states = {Path(each.path).name: each.state for each in broker.logs.dirs}
        assert not broker.stopping.is_set(), "the broker ends"
        await broker.stop()
        return refusal, states

    return asyncio.run(run())


@pytest.mark.parametrize("given", ["", "{root}/one", "{root}/one/", "{root}/two/../one", "{root}/one/metadata"])
def test_D13_a_directory_with_the_only_metadata_is_not_taken_offline(tmp_path: Path, given: str) -> None:
    metadata = {"metadata.log.dirs": given.format(root=tmp_path)} if given else {}
    refusal, states = taken_offline(tmp_path, metadata)
    assert refusal is not None and f"{tmp_path}/one also holds the only copy of the metadata" in refusal
    assert states == {"one": DirState.ONLINE, "two": DirState.ONLINE}


@pytest.mark.parametrize("given", ["{root}/one,{root}/meta", "{root}/one-more"])
def test_D13_a_directory_beside_which_there_is_metadata_is_taken_offline(tmp_path: Path, given: str) -> None:
    refusal, states = taken_offline(tmp_path, {"metadata.log.dirs": given.format(root=tmp_path)})
    assert refusal is None
    assert states == {"one": DirState.OFFLINE, "two": DirState.ONLINE}
