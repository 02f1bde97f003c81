"""A controller that dies in the middle of a commit, in a store that cuts commits (metadata/pieces.py): from every
prefix of whole atoms of every decision another controller gets to a sound cluster, with nothing but time and the
heartbeats of the brokers that live."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import settings

from holdfast.controller import events
from holdfast.controller.controller import Controller
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.pieces import atoms
from tests.property.test_controller import SETTINGS, ControllerMachine

STEP_MS = 3_000
"""Often enough for no session to end."""


class CutMachine(ControllerMachine):
    """The cluster of test_controller.py. After each decision others go on from each part of it."""

    def handle(self, event: Any) -> Any:
        before, begin = self.image, len(self.shared.log)
        reply = super().handle(event)
        made = list(atoms(self.shared.log[begin:]))
        for kept in range(1, len(made)):
            prefix = [record for atom in made[:kept] for record in atom]
            self.another_goes_on(before.apply(prefix, before.next_offset)[0])
        return reply

    def another_goes_on(self, image: ClusterImage) -> None:
        living = {b.id: b.epoch for b in self.image.brokers.values() if b.may_lead}
        controller = Controller(image, SETTINGS, random.Random(1))
        now_ms = self.now_ms
        controller.begin(now_ms)
        for _ in range(2 + SETTINGS.session_timeout_ms // STEP_MS):
            for broker_id, epoch in living.items():
                self.decide(controller, events.BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch), now_ms)
            while due := controller.due(now_ms):
                for event in due:
                    self.decide(controller, event, now_ms)
            now_ms += STEP_MS
        self.check(controller.image, living)

    @staticmethod
    def decide(controller: Controller, event: Any, now_ms: int) -> None:
        decision = controller.handle(event, now_ms)
        controller.replay(decision.records, controller.image.next_offset)

    @staticmethod
    def check(image: ClusterImage, living: dict[int, int]) -> None:
        serving = {b.id for b in image.brokers.values() if b.may_lead}
        assert serving == {b for b, epoch in living.items() if b in image.brokers and image.brokers[b].epoch == epoch}
        for topic in image.sorted_topics():
            assert sorted(topic.partitions) == list(range(len(topic.partitions))) and topic.partitions
            for number, p in topic.numbered():
                if p.leader is None:
                    assert not serving & {*p.isr, *p.elr}, f"{topic.name}-{number} could be led: {p}"
                else:
                    assert p.leader in serving, f"{topic.name}-{number} is led by the dead: {p}"
                    assert set(p.isr) <= serving, f"{topic.name}-{number} waits for the dead: {p}"


TestCutCommits = CutMachine.TestCase
TestCutCommits.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
