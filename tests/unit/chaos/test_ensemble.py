"""What an ensemble has decided, by the transaction logs of its servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.ensemble import judged, merged
from tests.zookeeper.transaction_log import Op, Transaction


def tx(zxid: int, path: str = "/a") -> Transaction:
    return Transaction(zxid=zxid, session=1, at_ms=0, kind="single", ops=(Op(op="setData", path=path, version=zxid),))


def test_what_a_majority_has_is_decided_in_the_order_of_its_numbers() -> None:
    """A server that was away has a gap, or ends early; each transaction is there once."""
    first, second, third = [tx(1), tx(2), tx(3), tx(4)], [tx(1), tx(4)], [tx(2), tx(3)]
    assert merged([first, second, third]) == ([tx(1), tx(2), tx(3), tx(4)], 0)
    assert merged([[tx(1), tx(2)]]) == ([tx(1), tx(2)], 0), "a server by itself decides"


def test_what_a_leader_proposed_that_nobody_else_heard_of_is_left_out() -> None:
    assert merged([[tx(1), tx(2, "/ghost"), tx(9)], [tx(1), tx(9)], [tx(1)]]) == ([tx(1), tx(9)], 1)


def test_two_transactions_of_one_number_are_no_history() -> None:
    with pytest.raises(AssertionError, match="one number"):
        merged([[tx(1, "/a")], [tx(1, "/b")]])


def refused(*codes: int, session: int = 1) -> Transaction:
    return Transaction(
        zxid=2, session=session, at_ms=0, kind="multi", ops=tuple(Op(op="error", code=code) for code in codes)
    )


def test_a_refused_multi_may_be_logged_with_other_codes_by_another_server() -> None:
    """It wrote nothing in either; of another session it is another one."""
    decided, alone = merged([[tx(1), refused(0, -110)], [tx(1), refused(-2, -110)]])
    assert (decided, alone) == ([tx(1), refused(0, -110)], 0)
    with pytest.raises(AssertionError, match="one number"):
        merged([[refused(-110)], [refused(-110, session=2)]])


def test_an_ensemble_that_nobody_was_the_controller_of_is_told(tmp_path: Path) -> None:
    found: list[tuple[str, str]] = []
    said = judged([tmp_path / "1", tmp_path / "2"], lambda kind, text: found.append((kind, text)))
    assert found == [("controllers", "no controller in 0 transactions of ZooKeeper")]
    assert said.startswith("0 transactions of the ensemble: 0 controllers")
