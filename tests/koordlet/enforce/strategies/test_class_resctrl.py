"""Cache and bandwidth by class: masks, shares, tasks, and what is left when it is off."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.class_resctrl import AMD, bandwidth, decide, ways
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage, Snapshot
from koordinator.node.kernel_files import RESCTRL_TASKS
from koordinator.node.resctrl import CacheAllocation
from tests.koordlet.enforce.strategies.qos_fixtures import pod_usage, policy, snapshot

MACHINE = CacheAllocation(0x7FF, (1, 0), "GenuineIntel")
TASKS = {"uid-job": frozenset({7, 8}), "uid-web": frozenset({9})}
LIMITED = {"catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 25}


def make_snapshot(*pods: PodUsage, **best_effort: Any) -> Snapshot:
    strategy = {"beClass": {"resctrlQOS": {"enable": True, **LIMITED, **best_effort}}}
    return snapshot(policy=policy(resourceQOSStrategy=strategy), pods=pods)


def settings(
    given: Snapshot, machine: CacheAllocation = MACHINE, *, is_enabled: bool = True
) -> dict[tuple[str, str], DesiredSetting]:
    """By group and part."""
    decided = decide(given, machine, TASKS, is_enabled=is_enabled).settings
    assert decided is not None
    return {(setting.target.folder, setting.target.part): setting for setting in decided}


@pytest.mark.parametrize(
    ("mask", "start", "end", "expected"),
    [
        (0x7FF, 0, 100, 0x7FF),
        (0x7FF, 10, 50, 0x3C),
        (0x7FF, 0, 30, 0xF),
        (0x7FF, 0, 1, 0x1),
        (0xFFF, 99, 100, None),
        (0x7FF, 50, 50, None),
        (0x7FF, 60, 50, None),
        (0x7FF, -1, 50, None),
        (0x7FF, 0, 101, None),
        (0x7FE, 0, 100, None),
        (0, 0, 100, None),
    ],
)
def test_ways(mask: int, start: int, end: int, expected: int | None) -> None:
    assert ways(mask, start, end) == expected


@pytest.mark.parametrize(
    ("percent", "vendor", "expected"),
    [
        (100, "GenuineIntel", 100),
        (25, "GenuineIntel", 30),
        (1, "GenuineIntel", 10),
        (100, AMD, 2048),
        (25, AMD, 40),
        (0, AMD, None),
        (101, "GenuineIntel", None),
    ],
)
def test_bandwidth(percent: int, vendor: str, expected: int | None) -> None:
    assert bandwidth(percent, vendor) == expected


def test_a_class_gets_its_part_on_every_cache() -> None:
    found = settings(make_snapshot())
    assert found["BE", "L3"].value == ((0, 0xF), (1, 0xF))
    assert found["BE", "MB"].value == ((0, 30), (1, 30))
    assert found["LS", "L3"].value == ((0, 0x7FF), (1, 0x7FF))


def test_the_tasks_of_a_class_are_in_its_group() -> None:
    decided = decide(make_snapshot(pod_usage("job", "BE"), pod_usage("web")), MACHINE, TASKS).settings
    assert decided is not None
    assert {setting.target.folder: setting.value for setting in decided if setting.target.file is RESCTRL_TASKS} == {
        "BE": frozenset({7, 8})
    }


def test_a_pod_with_a_group_of_its_own_stays_in_it() -> None:
    pod = pod_usage("job", "BE", annotations={"node.koordinator.sh/resctrl": "{}"})
    assert all(setting.target.file is not RESCTRL_TASKS for setting in settings(make_snapshot(pod)).values())


def test_a_range_that_is_none_leaves_the_cache_as_it_is() -> None:
    found = settings(make_snapshot(catRangeStartPercent=30, catRangeEndPercent=30))
    assert ("BE", "L3") not in found
    assert found["BE", "MB"].value == ((0, 30), (1, 30))


def test_without_the_gate_no_group_is_made() -> None:
    assert settings(make_snapshot(), is_enabled=False) == {}


def test_without_the_gate_groups_that_are_there_get_everything() -> None:
    machine = CacheAllocation(0x7FF, (0,), "GenuineIntel", {"BE": 0.0})
    found = settings(make_snapshot(), machine, is_enabled=False)
    assert {key: (setting.value, setting.priority) for key, setting in found.items()} == {
        ("BE", "L3"): (((0, 0x7FF),), Priority.RELEASE),
        ("BE", "MB"): (((0, 100),), Priority.RELEASE),
    }


def test_a_machine_without_resctrl_is_left_alone() -> None:
    assert decide(make_snapshot(), None, TASKS).settings is None
