"""More stories of gangs in which the original ends as ours does: how they are declared, and what becomes of a gang that
has run once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.real.gangs.scenarios import Scenario
from tests.real.gangs.stage import Stage, names


async def gang_of_one(stage: Stage) -> None:
    await stage.nodes(1)
    await stage.group("g", 1)
    await stage.pod("g", 0)


async def old_labels(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="nothing", labels={"name": "g", "min-available": "2"})


async def old_labels_and_too_few(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="nothing", labels={"name": "g", "min-available": "3"})


async def label_goes_before_annotation(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2)
    await stage.pods_of("g", 2, annotations={"name": "other", "min_available": "5"})


async def minimum_is_negative(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="annotation", annotations={"min_available": "-1"})


async def waiting_time_is_negative(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="annotation", annotations={"min_available": "2", "waiting_time": "-5s"})


async def first_pod_declares(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pod("g", 0, by="annotation", annotations={"min_available": "2"})
    await stage.pod("g", 1, by="annotation", annotations={"min_available": "3"})


async def topology_is_no_object(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2, network_topology_spec="{")
    await stage.pods_of("g", 2)


async def only_one_names_the_other(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("b", 2)
    await stage.group("a", 1, groups=names(["a", "b"]))
    await stage.pod("a", 0)
    await stage.pod("b", 0)


async def patience_is_short(stage: Stage) -> None:
    await stage.nodes(1)
    await stage.group("g", 2, timeout=2)
    await stage.pods_of("g", 2)


async def only_waiting_and_one_more(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 2, match_policy="only-waiting")
    await stage.pods_of("g", 2)
    await stage.bound("g", 2)
    await stage.pod("g", 2)


async def waiting_and_running_after_a_loss(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2, match_policy="waiting-and-running")
    await stage.pods_of("g", 2)
    await stage.bound("g", 2)
    await stage.delete_pod("g-0")
    await stage.pod("g", 2)


async def once_satisfied_after_a_loss(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.bound("g", 2)
    await stage.delete_pod("g-0")
    await stage.pod("g", 2)


async def annotation_gang_created_anew(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="annotation", annotations={"min_available": "3"})
    await stage.quiet()
    for number in range(2):
        await stage.delete_pod(f"g-{number}")
    for number in range(2, 4):
        await stage.pod("g", number, by="annotation", annotations={"min_available": "2"})


DECLARED: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            gang_of_one,
            old_labels,
            old_labels_and_too_few,
            label_goes_before_annotation,
            minimum_is_negative,
            waiting_time_is_negative,
            first_pod_declares,
            topology_is_no_object,
            only_one_names_the_other,
            patience_is_short,
            only_waiting_and_one_more,
            waiting_and_running_after_a_loss,
            once_satisfied_after_a_loss,
            annotation_gang_created_anew,
        )
    }
)
