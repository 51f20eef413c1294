"""Resctrl: caches and bandwidth of single pods, from the annotation to the groups of a made machine."""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.enforce.executor.desired_settings import Explanation, Outcome, Setting
from koordinator.koordlet.enforce.hooks.contexts import ContainerContext, HookError
from koordinator.koordlet.enforce.hooks.pod_resctrl import container, event_of, schemata, task_group, unused_groups
from koordinator.koordlet.enforce.strategies.class_resctrl import AMD
from koordinator.node.kernel_writer import MachineFiles, RefusedWriteError
from koordinator.node.resctrl import CacheAllocation, read_allocation
from tests.koordlet.enforce.hooks.hook_fixtures import rules, running, starting
from tests.koordlet.enforce.hooks.hooked_node import HookedNode

KEY = "node.koordinator.sh/resctrl"
MACHINE = CacheAllocation(0x7FF, (0, 1), "GenuineIntel", {"koordlet-web": 0.0})
HALF = {"llc": {"schemata": {"range": [0, 50]}}, "mb": {"schemata": {"percent": 45}}}


def annotated(wanted: Any) -> dict[str, str]:
    return {KEY: wanted if isinstance(wanted, str) else json.dumps(wanted)}


def shares(wanted: Any, machine: CacheAllocation = MACHINE) -> dict[str, Any]:
    """By kind of cache."""
    desired = schemata(running("web", annotations=annotated(wanted)), rules(caches=machine))
    assert {each.target.folder for each in desired} == {"koordlet-web"}
    return {each.target.part: dict(each.value) for each in desired if isinstance(each.value, tuple)}


def test_all_caches_get_the_range_and_the_percentage() -> None:
    assert shares(HALF) == {"L3": {0: 0x3F, 1: 0x3F}, "MB": {0: 50, 1: 50}}


def test_single_caches_go_before_that() -> None:
    wanted = {
        "llc": {"schemata": {"range": [0, 50]}, "schemataPerCache": [{"cacheID": 1, "range": [50, 100]}]},
        "mb": {"schemataPerCache": [{"cacheID": 0, "percent": 20}]},
    }
    assert shares(wanted) == {"L3": {0: 0x3F, 1: 0x7C0}, "MB": {0: 20, 1: 100}}


def test_what_is_not_named_is_not_limited() -> None:
    assert shares({"mb": {"schemata": {"percent": 10}}})["L3"] == {0: 0x7FF, 1: 0x7FF}


def test_amd_counts_bandwidth_in_units_of_its_own() -> None:
    assert shares(HALF, CacheAllocation(0xFFFF, (0,), AMD))["MB"] == {0: 72}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("{", f"metadata.annotations[{KEY}]: "),
        ({"llc": {"schemata": {"range": [50, 20]}}}, "llc.schemata.range: [50, 20] is not [START, END]"),
        ({"llc": {"schemata": {"range": [50]}}}, "llc.schemata.range: [50] is not [START, END]"),
        ({"mb": {"schemata": {"percent": 101}}}, "mb.schemata.percent: 101 is not in [1, 100]"),
        (
            {"mb": {"schemataPerCache": [{"cacheID": 0, "percent": 9}, {"cacheID": 7, "percent": 9}]}},
            "mb.schemataPerCache[1].cacheID: 7 is none of the caches 0, 1",
        ),
    ],
)
def test_an_annotation_that_is_not_valid_is_named(wanted: Any, text: str) -> None:
    with pytest.raises(HookError) as raised:
        shares(wanted)
    assert text in str(raised.value)


_ANY_RANGE = st.lists(st.integers(-5, 105), max_size=3)


@given(_ANY_RANGE, _ANY_RANGE, st.integers(-1, 3), st.integers(-5, 105))
def test_any_annotation_is_an_error_or_gives_every_cache_something(
    everything: list[int], single: list[int], cache: int, percent: int
) -> None:
    """The kernel takes ways that lie side by side alone, and shares of bandwidth in steps of ten."""
    wanted = {
        "llc": {"schemata": {"range": everything}, "schemataPerCache": [{"cacheID": cache, "range": single}]},
        "mb": {"schemata": {"percent": percent}},
    }
    try:
        parts = shares(wanted)
    except HookError:
        return
    assert parts["L3"].keys() == parts["MB"].keys() == {0, 1}
    for mask in parts["L3"].values():
        lowest = mask & -mask
        assert 0 < mask <= 0x7FF
        assert (mask + lowest) & mask == 0
    assert all(share in range(10, 101, 10) for share in parts["MB"].values())


@pytest.mark.parametrize("pod_has_it", [False, True])
def test_a_machine_without_resctrl_does_nothing(pod_has_it: bool) -> None:
    pod = running("web", annotations=annotated(HALF) if pod_has_it else {})
    assert schemata(pod, rules(caches=None)) == []


@pytest.mark.parametrize(("groups", "expected"), [({"koordlet-web": 0.0}, "koordlet-web"), ({}, None)])
def test_a_container_starts_in_the_group_if_it_is_there(groups: dict[str, float], expected: str | None) -> None:
    change = container(
        starting(**annotated(HALF)), ContainerContext("c"), rules(caches=CacheAllocation(0x7FF, (0,), "", groups))
    )
    assert (change and change.resctrl_group) == expected


def test_pods_without_the_annotation_have_no_group() -> None:
    assert task_group(running("web"), rules(caches=MACHINE)) is None


@pytest.mark.parametrize(
    ("knows_pods", "now", "expected"),
    [(True, 1010.0, ["koordlet-gone"]), (True, 1009.0, []), (False, 9999.0, [])],
)
def test_groups_that_go(knows_pods: bool, now: float, expected: list[str]) -> None:
    """Not those of others, of pods that have it, of the last ten seconds, nor any before kubelet has told its pods."""
    groups = dict.fromkeys(("koordlet-gone", "koordlet-web", "LS", "info"), 1000.0)
    given = rules(caches=CacheAllocation(0x7FF, (0,), "", groups), now=now, knows_pods=knows_pods)
    desired = unused_groups([running("web", annotations=annotated(HALF))], given)
    assert [each.target.folder for each in desired] == expected


@pytest.mark.parametrize(
    ("outcome", "groups", "expected"),
    [
        (Outcome.WRITTEN, {}, ("Normal", "Pod Level Resctrl", "Create Resctrl Group")),
        (Outcome.WRITTEN, {"koordlet-web": 0.0}, None),
        (Outcome.NOT_WRITTEN_YET, {}, None),
        (
            Outcome.REFUSED,
            {},
            ("Warning", "ResctrlGroupRefused", f"metadata.annotations[{KEY}]: no space left on device"),
        ),
    ],
)
def test_what_the_author_is_notified(
    outcome: Outcome, groups: dict[str, float], expected: tuple[str, str, str] | None
) -> None:
    pod, given = running("web", annotations=annotated(HALF)), rules(caches=CacheAllocation(0x7FF, (0,), "", groups))
    each = schemata(pod, given)[0]
    setting = Setting(each.target, each.value, each, (each.owner,))
    assert event_of(pod, given, Explanation("", setting, outcome, "no space left on device")) == expected


class KilledError(Exception):
    """The agent was killed in the middle of a round."""


class ResctrlFiles(MachineFiles):
    """Groups as the kernel makes and removes them; tasks are appended. There is ``room`` for so many groups, and the
    agent is killed after so many ``writes``."""

    def __init__(self, capacity: int, writes: int) -> None:
        self.capacity = capacity
        self.writes = writes

    def make_folder(self, path: str) -> None:
        if self.capacity == 0:
            raise RefusedWriteError(path, "mkdir", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self.capacity -= 1
        Path(path).mkdir()
        Path(path, "schemata").write_text("    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
        Path(path, "tasks").write_text("")

    def remove_folder(self, path: str) -> None:
        shutil.rmtree(path)
        self.capacity += 1

    def write(self, path: str, content: str) -> None:
        file = Path(path)
        if "/resctrl/" in path:
            if self.writes == 0:
                raise KilledError
            self.writes -= 1
        if "/resctrl/" not in path:
            super().write(path, content)
        elif file.name == "tasks":
            file.write_text(file.read_text() + f"{content}\n")
        else:
            kind = content.partition(":")[0]
            kept = [line for line in file.read_text().splitlines() if not line.strip().startswith(kind)]
            file.write_text("".join(f"{line}\n" for line in [*kept, content.strip()]))


class ResctrlNode(HookedNode):
    """A node whose CPUs share out caches and bandwidth."""

    def __init__(self, root: Path, *, capacity: int = 4, gate: bool = True, writes: int = 1000) -> None:
        super().__init__(root, ResctrlFiles(capacity, writes), Resctrl=gate)
        self.machine.write("/proc/cpuinfo", "vendor_id : GenuineIntel\nflags : cat_l3 mba\n")
        self.machine.write("/sys/fs/resctrl/schemata", "    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
        self.machine.write("/sys/fs/resctrl/info/L3/cbm_mask", "7ff\n")

    def reconcile(self, *, seconds: float = 60.0) -> dict[str, dict[str, list[str]]]:
        """The groups of pods and what is in them, after one round at so many seconds after they were made."""
        host = self.machine.host
        caches = read_allocation(host)
        now = max((*(caches.groups.values() if caches else ()), 0.0)) + seconds
        self.rules = rules(caches=caches, now=now, knows_pods=bool(self.pods))
        self.run_hooks()
        return {
            folder.name: {file.name: sorted(file.read_text().split()) for file in folder.iterdir()}
            for folder in Path(host.sys_fs, "resctrl").glob("koordlet-*")
        }

    def run_limited(self, name: str, wanted: Any, *tasks: int) -> None:
        pod = self.run_pod(name, "LS", annotations=annotated(wanted))
        lines = "".join(f"{task}\n" for task in tasks)
        self.machine.write(f"/sys/fs/cgroup/cpu/{pod.containers[0].cgroup}/tasks", lines)


LIMITED = ["L3:0=3f;1=3f", "MB:0=50;1=50"]


def test_a_pod_gets_a_group_and_its_tasks_are_in_it(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path)
    node.run_limited("web", HALF, 11, 12)
    assert node.reconcile() == {"koordlet-web": {"schemata": LIMITED, "tasks": ["11", "12"]}}


def test_an_annotation_that_changes_counts(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path)
    node.run_limited("web", HALF)
    node.reconcile()
    node.pods.clear()
    node.run_limited("web", {"llc": {"schemata": {"range": [0, 10]}}})
    assert node.reconcile()["koordlet-web"]["schemata"] == ["L3:0=3;1=3", "MB:0=100;1=100"]


def test_one_that_becomes_invalid_leaves_the_last_good_one(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path)
    node.run_limited("web", HALF)
    node.reconcile()
    node.pods.clear()
    node.run_limited("web", {"mb": {"schemata": {"percent": 300}}})
    assert node.reconcile()["koordlet-web"]["schemata"] == LIMITED
    assert "percent: 300 is not in [1, 100]" in node.notes[0]


@pytest.mark.parametrize("how", ["the pod ends", "the annotation goes"])
def test_the_group_goes(tmp_path: Path, how: str) -> None:
    node = ResctrlNode(tmp_path)
    node.run_limited("web", HALF)
    node.reconcile()
    node.pods.clear()
    node.run_pod("other" if how == "the pod ends" else "web", "LS")
    assert node.reconcile() == {}


def test_the_group_of_a_pod_that_starts_stays(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path)
    node.run_pod("other", "LS")
    node.rules = rules(caches=read_allocation(node.machine.host), knows_pods=True)
    node.reconciler.start(starting(**annotated(HALF)), node.rules)
    assert list(node.reconcile()) == ["koordlet-web"]


def test_a_group_of_a_former_agent_is_taken_over(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path)
    node.run_limited("web", HALF)
    node.reconcile()
    again = ResctrlNode(tmp_path)
    again.pods = node.pods
    assert again.reconcile()["koordlet-web"]["schemata"] == LIMITED


@pytest.mark.parametrize("writes", range(5))
def test_a_kill_at_any_write_leaves_what_the_next_agent_finishes(tmp_path: Path, writes: int) -> None:
    node = ResctrlNode(tmp_path, writes=writes)
    node.run_limited("web", HALF, 11, 12)
    with suppress(KilledError):
        node.reconcile()
    again = ResctrlNode(tmp_path)
    again.pods = node.pods
    assert again.reconcile() == {"koordlet-web": {"schemata": LIMITED, "tasks": ["11", "12"]}}


def test_the_gate_off_removes_all_groups(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path)
    node.run_limited("web", HALF)
    node.reconcile()
    off = ResctrlNode(tmp_path, gate=False)
    off.pods = node.pods
    assert off.reconcile(seconds=0.0) == {}


def test_a_machine_without_capacity_for_a_group_goes_on(tmp_path: Path) -> None:
    node = ResctrlNode(tmp_path, capacity=1)
    node.run_limited("web", HALF)
    node.run_limited("db", HALF)
    assert len(node.reconcile()) == 1
