"""The check of one controller at a time: what it finds in logs that are made up."""

from __future__ import annotations

import pytest

from tests.zookeeper.reigns import check_reigns
from tests.zookeeper.transaction_log import Op, Transaction

OLD, NEW = 11, 12


def tx(session: int, *ops: Op) -> Transaction:
    return Transaction(zxid=1, session=session, at_ms=0, kind="multi", ops=ops)


def claim(session: int, epoch: int) -> Transaction:
    return tx(
        session,
        Op(op="create", path="/controller", ephemeral=True),
        Op(op="setData", path="/controller_epoch", data=b"%d" % epoch, version=epoch),
    )


def check(epoch: int) -> Op:
    return Op(op="check", path="/controller_epoch", version=epoch)


WRITE = Op(op="setData", path="/brokers/topics/t/partitions/0/state", version=3)
GOOD = [
    tx(OLD, Op(op="create", path="/config/topics")),
    claim(OLD, 1),
    tx(OLD, check(1), WRITE),
    claim(NEW, 2),
    tx(OLD, Op(op="create", path="/brokers/ids/1", ephemeral=True)),
    tx(OLD, check(1), WRITE, Op(op="error", code=-103)),
    tx(NEW, check(2), WRITE),
]


def test_H_08_a_good_log_has_its_epochs() -> None:
    assert check_reigns(GOOD) == [1, 2]
    assert check_reigns([*GOOD, tx(99, WRITE)], by_hand=frozenset({99})) == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        tx(NEW, WRITE),
        tx(NEW, check(1), WRITE),
        tx(OLD, check(2), WRITE),
        tx(OLD, check(1), WRITE),
        claim(OLD, 2),
        claim(OLD, 1),
        tx(OLD, Op(op="setData", path="/controller_epoch", data=b"3", version=3)),
    ],
)
def test_H_08_a_write_of_somebody_else_is_found(wrong: Transaction) -> None:
    with pytest.raises(AssertionError):
        check_reigns([*GOOD, wrong])
