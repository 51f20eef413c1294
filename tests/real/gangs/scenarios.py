"""Stories of gangs that both schedulers are put through. In those of SAME the original ends as ours does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.real.gangs.stage import Stage, names

Scenario = Callable[[Stage], Awaitable[None]]


async def fits(stage: Stage) -> None:
    await stage.nodes(2, 2)
    await stage.group("g", 3)
    await stage.pods_of("g", 3)


async def fits_by_annotations(stage: Stage) -> None:
    await stage.nodes(2, 2)
    await stage.pods_of("g", 3, by="annotation", annotations={"min_available": "3"})


async def does_not_fit(stage: Stage) -> None:
    await stage.nodes(1, 1)
    await stage.group("g", 3)
    await stage.pods_of("g", 3)


async def is_incomplete(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 3)
    await stage.pods_of("g", 2)


async def has_no_pod_group(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.pods_of("g", 2)


async def group_comes_late(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.pods_of("g", 2)
    await stage.group("g", 2)


async def room_comes_late(stage: Stage) -> None:
    await stage.nodes(1)
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.add_node("later", 1)


async def group_of_gangs_fits(stage: Stage) -> None:
    await stage.nodes(3)
    together: dict[str, Any] = {"groups": names(["a", "b"])}
    await stage.group("a", 2, **together)
    await stage.group("b", 1, **together)
    await stage.pods_of("a", 2)
    await stage.pods_of("b", 1)


async def group_of_gangs_does_not_fit(stage: Stage) -> None:
    await stage.nodes(2)
    together: dict[str, Any] = {"groups": names(["a", "b"])}
    await stage.group("a", 2, **together)
    await stage.group("b", 1, **together)
    await stage.pods_of("a", 2)
    await stage.pods_of("b", 1)


async def group_names_a_missing_gang(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("a", 2, groups=names(["a", "b"]))
    await stage.pods_of("a", 2)


async def more_than_the_minimum(stage: Stage) -> None:
    await stage.nodes(4)
    await stage.group("g", 2)
    await stage.pods_of("g", 4)


async def one_more_for_a_gang_that_runs(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.pod("g", 2)


async def minimum_is_no_number(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.pods_of("g", 2, by="annotation", annotations={"min_available": "two"})


async def bad_mode_is_strict(stage: Stage) -> None:
    await stage.nodes(1)
    await stage.group("g", 2, mode="strict")
    await stage.pods_of("g", 2)


async def waiting_and_running(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 2, match_policy="waiting-and-running")
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.pod("g", 2)


SAME: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            fits,
            fits_by_annotations,
            does_not_fit,
            is_incomplete,
            has_no_pod_group,
            group_comes_late,
            room_comes_late,
            group_of_gangs_fits,
            group_of_gangs_does_not_fit,
            group_names_a_missing_gang,
            one_more_for_a_gang_that_runs,
            minimum_is_no_number,
            bad_mode_is_strict,
        )
    }
)
OPEN: Final[Mapping[str, Scenario]] = MappingProxyType(
    {each.__name__: each for each in (does_not_fit, more_than_the_minimum, bad_mode_is_strict, waiting_and_running)}
)
"""Played one after another, on nodes of the same name: what was full before is free."""
