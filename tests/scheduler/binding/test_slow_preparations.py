"""A thousand pods whose preparation takes long, each kind that the chart's profile has: the pods that come after them
are bound at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, RESERVATIONS, STORAGE_CLASSES
from koordinator.api.pod import Pod
from tests.real_world.faulty_api_server import FAULTS, Rule
from tests.scheduler.broken_input.test_broken_objects import running_beside
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.reservation.test_node_faults import pending
from tests.scheduler.plugins.volumes import storage
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

SLOW: Final = 1000
GOOD: Final = 30
UNTIL_LENT: Final = 12.0
"""Seconds until so many requests of a namespace have no answer that its further ones step aside."""
NEVER, LATE = FAULTS["there is never an answer"], FAULTS["a webhook takes half a minute"]


def small(name: str) -> Pod:
    return make_pod(name, cpu="10m", memory="1Mi")


def waits_for_volumes(api: SchedulerApi, number: int) -> None:
    """Nobody makes the volume of its claim."""
    name = f"slow-{number}"
    api.store(storage.claim(name), PERSISTENT_VOLUME_CLAIMS)
    pod = small(name)
    volumes = storage.pod(name, name).spec.volumes
    api.store(replace(pod, spec=replace(pod.spec, volumes=volumes)))


def loses_an_annotation(api: SchedulerApi, number: int, name: str = "slow", namespace: str = "default") -> None:
    """A Binding cannot take away what an earlier attempt has recorded."""
    pod, annotations = small(f"{name}-{number}"), {RESERVATION_ALLOCATED: '{"uid":"gone"}'}
    api.store(replace(pod, metadata=replace(pod.metadata, namespace=namespace, annotations=annotations)))


def is_a_reservation(api: SchedulerApi, number: int) -> None:
    found = pending(cpu="10m")
    api.store(replace(found, metadata=replace(found.metadata, name=f"slow-{number}", uid=f"{number}")), RESERVATIONS)


Case = tuple[Callable[[SchedulerApi, int], None], Rule | None]
CASES: Final[dict[str, Callable[[], Case]]] = {
    "volumes that nobody makes": lambda: (waits_for_volumes, None),
    "claims whose patches are never answered": lambda: (
        waits_for_volumes,
        Rule(NEVER, "patch", "persistentvolumeclaims"),
    ),
    "claims with a slow webhook": lambda: (waits_for_volumes, Rule(LATE, "patch", "persistentvolumeclaims")),
    "annotations with a slow webhook": lambda: (loses_an_annotation, Rule(LATE, "patch", "pods", name="slow-*")),
    "annotations that are never answered": lambda: (loses_an_annotation, Rule(NEVER, "patch", "pods", name="slow-*")),
    "Reservations with a slow webhook": lambda: (is_a_reservation, Rule(LATE, "patch", "reservations", "status")),
}


@pytest.mark.parametrize("name", CASES)
def test_pods_are_bound_beside_a_thousand_slow_ones(name: str) -> None:
    store_slow, rule = CASES[name]()

    async def run() -> None:
        api = SchedulerApi()
        for node in "abcdef":
            api.store(make_node(node, cpu="200", memory="400Gi", pods="500"))
        api.store(storage.storage_class("wait"), STORAGE_CLASSES)
        api.faults.rules += [rule] if rule is not None else []
        fixture = running_beside(api)
        async with fixture.running():
            for number in range(SLOW):
                store_slow(api, number)
            await fixture.until_idle(3)
            await bind_good_ones(fixture)
            api.faults.rules.clear()
            # What the API server was asked for is answered by then.
            await fixture.until_idle(31)

    asyncio.run(run())


async def bind_good_ones(fixture: RunningScheduler) -> None:
    api = fixture.api
    # What was begun for the slow ones is not done: they are prepared still.
    assert fixture.scheduler.state.assumed_count == SLOW
    for number in range(GOOD):
        api.store(small(f"good-{number}"))
        # To be prepared as well, which takes no time itself.
        loses_an_annotation(api, number, "prepared", "other")
    await fixture.until_idle(0.5)
    assert {f"good-{number}" for number in range(GOOD)} <= api.placed().keys()
    await fixture.until_idle(UNTIL_LENT)
    assert len(api.placed()) == 2 * GOOD
    assert fixture.scheduler.state.assumed_count == SLOW
