"""The differences between what Apache Kafka 3.9.1 and Holdfast write to ZooKeeper, each with its reason.

The one table of them: what the phases of test_phases.py show, and below it what of the recordings is not replayed.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.unit.metadata.test_golden_znodes import NOTHING, Difference


class Row(NamedTuple):
    """``*`` in any text, ``[5-9]`` in the first two. ``kafka`` and ``ours``: of a node without key the kinds of its
    writes, "nothing": none. ``sometimes``: it depends on who is quicker whether there is such a difference."""

    where: str
    path: str
    key: str
    kafka: str
    ours: str
    why: str
    sometimes: bool = False

    def holds(self, difference: Difference) -> bool:
        plain = (text.replace("[", "[[]") for text in (self.key, self.kafka, self.ours))
        return all(map(fnmatchcase, difference, (self.where, self.path, *plain)))


EPOCH = "/controller_epoch"
STATE = "/brokers/topics/*/state"
BY_BROKERS = "written by a broker there; here by the controller, and all that it writes is checked (H-08)"
NO_QUOTAS = "not built: quotas of users and clients, and SCRAM"
OTHER_KEY = "another key is set here than was when Kafka was recorded"
ONE_RECORD = "the end of a reassignment is one record: no crash is between its steps (R-43)"
ALL_AT_ONCE = "partitions that are done in one commit leave the request together: no rest of it is written"
NO_REORDER_EPOCH = "a reassignment that only orders replicas anew is no new leadership: no leader epoch begins"
AT_ONCE = "C19: the controller deletes at once: no request, and no states before"
RESIGNS = "a controller that stops gives its claim back, one whose port refuses is displaced: no session is waited for"
REMOVES = "the controller removes the node of a broker that it gave up: it need not wait for its own old session"
WHO_LEADS = "which partitions lose a leader or an ISR's member depends on where they were then; types are compared"
NO_NEW_REPLICA = "another target among the same replicas: nobody comes or goes, so no leader epoch begins"
FEATURES = "a new cluster begins with transaction.version 2, written by its first controller; 3.9.1 has no such feature"

TABLE = [
    # -- features
    Row("a_00*", "/feature", "*", "*", "*", FEATURES),
    # -- checks
    Row("*", "/brokers/topics/*", "(check)", "*nothing*", EPOCH, BY_BROKERS),
    Row("*", "/config/*", "(check)", "*nothing*", EPOCH, BY_BROKERS),
    Row("*", "/config/*", "(check)", "/controller", EPOCH, BY_BROKERS),
    Row("*", "/latest_producer_id_block", "(check)", NOTHING, EPOCH, BY_BROKERS),
    # -- configurations
    Row("a_06*", "/config/users*", "", "create", NOTHING, NO_QUOTAS),
    Row("a_06*", "/config/clients/*", "", "create", NOTHING, NO_QUOTAS),
    Row("a_06*", "/config/changes/config_change_000000000[5-9]", "", "create", NOTHING, NO_QUOTAS),
    Row("a_09*", "/config/brokers/1", "config", "*log.cleaner.threads*", "*log.retention.ms*", OTHER_KEY),
    Row("a_10*", "/config/brokers/1", "config", "*log.cleaner.threads*", "*log.retention.ms*", OTHER_KEY),
    # -- reassignments
    Row("a_08*", "/brokers/topics/golden/partitions/0/state", "leader_epoch", "1 2 3 4", "0 1 2", NO_REORDER_EPOCH),
    Row("a_09*", "/brokers/topics/mv/partitions/0/state", "leader_epoch", "1 2 3 4", "1 2 3", NO_NEW_REPLICA),
    Row("a_10*", "/brokers/topics/mv/partitions/0/state", "leader_epoch", "4 5 6", "4", ONE_RECORD),
    Row("a_10*", "/brokers/topics/mv/partitions/0/state", "leader", "1 3", "3", ONE_RECORD),
    Row("a_10*", "/brokers/topics/mv/partitions/0/state", "isr", "[1, 2, 3] [2, 3]", "[2, 3]", ONE_RECORD),
    Row("a_11*", "/brokers/topics/mv/partitions/1/state", "leader_epoch", "1 2 3", "1 2", ONE_RECORD),
    Row("a_11*", "/brokers/topics/mv/partitions/1/state", "isr", "[2, 1] [2, 1, 3] *", "[2, 1] [1, 3]", ONE_RECORD),
    Row("a_11*", "/admin/reassign_partitions", "*", "*", "*", ALL_AT_ONCE, sometimes=True),
    # -- deletions
    Row("a_12*", STATE, "(write)", "delete setData", "delete", AT_ONCE),
    Row("a_12*", "/brokers/topics/*", "type of *", "*", NOTHING, AT_ONCE),
    Row("a_12*", "/admin/delete_topics/mv", "", "create delete", NOTHING, AT_ONCE),
    Row("b_04*", "/admin/delete_topics/dd", "", "create", NOTHING, AT_ONCE),
    Row("b_04*", "/brokers/topics/dd*", "", NOTHING, "delete", AT_ONCE),
    Row("b_04*", "/config/topics/dd", "", NOTHING, "delete", AT_ONCE),
    Row("b_04*", STATE, "*", "*setData*", "delete", AT_ONCE),
    Row("b_04*", STATE, "type of *", "*", NOTHING, AT_ONCE),
    Row("b_0[5-9]*", "/brokers/topics/dd*", "", "*", NOTHING, AT_ONCE),
    Row("b_09*", "/config/topics/dd", "", "delete", NOTHING, AT_ONCE),
    Row("b_09*", "/admin/delete_topics/dd", "", "delete", NOTHING, AT_ONCE),
    # -- brokers that go and come
    Row("b_*", "/controller", "(write)", "create", "create delete", RESIGNS, sometimes=True),
    Row("b_*", "/controller", "(multi)", "*", "*", RESIGNS, sometimes=True),
    Row("b_*", "/controller", "", NOTHING, "*", RESIGNS, sometimes=True),
    Row("b_*", EPOCH, "", NOTHING, "setData", RESIGNS, sometimes=True),
    Row("b_*", "/brokers/ids/?", "(write)", "create setData", "create delete setData", REMOVES, sometimes=True),
    Row("b_*", "/brokers/ids/?", "(check)", NOTHING, "*", REMOVES, sometimes=True),
    Row("b_*", "/brokers/ids/?", "", NOTHING, "delete", REMOVES, sometimes=True),
    Row("b_0[015-9]*", STATE, "", "setData*", NOTHING, WHO_LEADS, sometimes=True),
    Row("b_0[015-9]*", STATE, "", NOTHING, "setData*", WHO_LEADS, sometimes=True),
]  # fmt: skip

NOT_REPLAYED = {
    "c_00_old_protocol_start": "an id that is given out (K426); inter.broker.protocol.version below 2.7 was never ours",
    "c_01_old_protocol_topic": "a topic without an id: only that protocol makes one",
    "c_02_old_protocol_isr_change": "leaders write states themselves: only that protocol does; ours propose (C16)",
    "c_03_old_protocol_producer_ids": "nothing is written",
    "c_04_old_protocol_reassign": "as a_09 and a_10, with ISRs that leaders write themselves",
    "c_05_second_broker_with_a_taken_id": "a failed transaction and nothing written; shown by K426's tests",
    "c_06_broker_id_against_meta_properties": "what is on log directories; the ISR's change by that protocol only",
}
"""Phases of the recordings that no cluster of ours can go through, or that write nothing."""
