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
    await stage.bound("g", 2)


async def capacity_comes_late(stage: Stage) -> None:
    await stage.nodes(1)
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.add_node("later", 1)
    await stage.bound("g", 2)


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


async def minimum_raised_while_running(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.change_minimum("g", 3)
    await stage.pod("g", 2)


async def group_deleted_while_running(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.delete_group("g")
    await stage.quiet()
    await stage.pod("g", 2)


async def group_deleted_while_incomplete(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 3)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.delete_group("g")
    await stage.pod("g", 2)


async def member_deleted_while_waiting(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 3)
    await stage.pods_of("g", 3)
    await stage.quiet()
    await stage.delete_pod("g-0")


async def second_gang_waits_for_the_first(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("a", 2)
    await stage.pods_of("a", 2)
    await stage.quiet()
    await stage.group("b", 2)
    await stage.pods_of("b", 2)


async def second_gang_after_the_first(stage: Stage) -> None:
    await second_gang_waits_for_the_first(stage)
    await stage.quiet()
    for number in range(2):
        await stage.delete_pod(f"a-{number}")
    await stage.bound("b", 2)


async def single_pod_beside_a_gang_that_does_not_fit(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 3)
    await stage.pods_of("g", 3)
    await stage.quiet()
    await stage.pod("single", 0, by="nothing")


async def non_strict_fits(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2, mode="NonStrict")
    await stage.pods_of("g", 2)


async def group_of_annotation_gangs_fits(stage: Stage) -> None:
    await stage.nodes(3)
    together = names(["a", "b"])
    await stage.pods_of("a", 2, by="annotation", annotations={"min_available": "2", "groups": together})
    await stage.pod("b", 0, by="annotation", annotations={"min_available": "1", "groups": together})


async def group_of_three_gangs_fits(stage: Stage) -> None:
    await stage.nodes(2, 1)
    for gang in ("a", "b", "c"):
        await stage.group(gang, 1, groups=names(["a", "b", "c"]))
        await stage.pod(gang, 0)


async def last_gang_of_the_group_comes_late(stage: Stage) -> None:
    await stage.nodes(3)
    together: dict[str, Any] = {"groups": names(["a", "b"])}
    await stage.group("a", 2, **together)
    await stage.pods_of("a", 2)
    await stage.quiet()
    await stage.group("b", 1, **together)
    await stage.pod("b", 0)
    await stage.bound("a", 2)


async def only_waiting_fits(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2, match_policy="only-waiting")
    await stage.pods_of("g", 2)


async def waiting_time_is_no_duration(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="annotation", annotations={"min_available": "2", "waiting_time": "soon"})


async def groups_are_no_list(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2, groups="default/a")
    await stage.pods_of("g", 2)


async def total_number_says_nothing(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pods_of("g", 2, by="annotation", annotations={"min_available": "2", "total_number": "5"})


async def capacity_after_a_pod_is_deleted(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.pod("single", 0, by="nothing")
    await stage.quiet()
    await stage.group("g", 2)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.delete_pod("single-0")
    await stage.bound("g", 2)


async def one_member_is_too_large(stage: Stage) -> None:
    await stage.nodes(2, 2)
    await stage.group("g", 2)
    await stage.pod("g", 0)
    await stage.pod("g", 1, cpu="5")


async def members_of_two_sizes_fit(stage: Stage) -> None:
    await stage.nodes(3, 1)
    await stage.group("g", 2)
    await stage.pod("g", 0)
    await stage.pod("g", 1, cpu="2")


async def minimum_lowered(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 3)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.change_minimum("g", 2)


async def group_recreated(stage: Stage) -> None:
    await stage.nodes(3)
    await stage.group("g", 3)
    await stage.pods_of("g", 2)
    await stage.quiet()
    await stage.delete_group("g")
    await stage.quiet()
    await stage.group("g", 2)


async def one_member_is_gated(stage: Stage) -> None:
    await stage.nodes(2)
    await stage.group("g", 2)
    await stage.pod("g", 0)
    await stage.pod("g", 1, schedulingGates=[{"name": "example.com/later"}])


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
CHANGED: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            minimum_raised_while_running,
            group_deleted_while_running,
            group_deleted_while_incomplete,
            member_deleted_while_waiting,
            second_gang_waits_for_the_first,
            single_pod_beside_a_gang_that_does_not_fit,
            non_strict_fits,
            group_of_annotation_gangs_fits,
            group_of_three_gangs_fits,
            last_gang_of_the_group_comes_late,
            only_waiting_fits,
            waiting_time_is_no_duration,
            groups_are_no_list,
            total_number_says_nothing,
            one_member_is_too_large,
            members_of_two_sizes_fit,
        )
    }
)
"""Objects change or go in use, and declarations of every kind."""
BETTER: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            minimum_lowered,
            group_recreated,
            one_member_is_gated,
            capacity_comes_late,
            capacity_after_a_pod_is_deleted,
            second_gang_after_the_first,
        )
    }
)
"""The original keeps pods out of its queue for long or binds a gang in part; where room comes, it leaves the gang
pending in some runs (three of eight for ``capacity_comes_late``)."""
