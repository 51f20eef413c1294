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
from tests.scheduler.plugins.volumes.worlds import World


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32))
def test_following_events_agrees_with_the_plain_version(seed: int) -> None:
    dice = Dice(seed)
    world = dice.world()
    incoming = [dice.pod(name) for name in ("p0", "p1", "p2")]
    for _ in range(10):
        compare(world, incoming, dice)
        dice.happen(world)
        dice.happen(world)
    compare(world, incoming, dice)


def compare(world: World, incoming: Sequence[Pod], dice: Dice) -> None:
    for pod in incoming:
        try:
            found = world.filter_result(pod)
        except PluginError:
            # A pod with somebody else's ephemeral claim; upstream ends the attempt, too.
            assert any(volume.ephemeral for volume in pod.spec.volumes)
            continue
        assert found == reference.filter_result(world.picture, pod)
        if isinstance(found, list) or pod.metadata.name in world.reserved:
            continue
        feasible = [name for name, reasons in found.items() if not reasons]
        if feasible and dice.rarely(4):
            world.reserve(pod, dice.pick(feasible))
