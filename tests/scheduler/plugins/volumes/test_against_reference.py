"""The four plugins, in one profile, agree with their plain version for any pod after any events.

Classes of pods are kept from event to event, as the engine keeps them, so that this also shows that whatever changes a
result makes rows or pods be evaluated anew. What is reserved for a pod is reserved in the plain picture, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.framework import PluginError
from tests.examples import examples
from tests.scheduler.plugins.volumes import reference
from tests.scheduler.plugins.volumes.dice import Dice
from tests.scheduler.plugins.volumes.fixtures import ClusterFixture


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32))
def test_following_events_agrees_with_the_plain_version(seed: int) -> None:
    dice = Dice(seed)
    fixture = dice.fixture()
    incoming = [dice.pod(name) for name in ("p0", "p1", "p2")]
    for _ in range(10):
        compare(fixture, incoming, dice)
        dice.happen(fixture)
        dice.happen(fixture)
    compare(fixture, incoming, dice)


def compare(fixture: ClusterFixture, incoming: Sequence[Pod], dice: Dice) -> None:
    for pod in incoming:
        try:
            found = fixture.filter_result(pod)
        except PluginError:
            # A pod with somebody else's ephemeral claim; upstream ends the attempt, too.
            assert any(volume.ephemeral for volume in pod.spec.volumes)
            continue
        assert found == reference.filter_result(fixture.picture, pod)
        if isinstance(found, list) or pod.metadata.name in fixture.reserved:
            continue
        feasible = [name for name, reasons in found.items() if not reasons]
        if feasible and dice.rarely(4):
            fixture.reserve(pod, dice.pick(feasible))
