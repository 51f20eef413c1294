"""Cookies of running pods, on a kernel with core scheduling that is simulated."""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from typing import Any

import pytest

from koordinator.api.qos import qos_class_of_name
from koordinator.koordlet.enforce.hooks.contexts import ContainerContext, PodContext
from koordinator.koordlet.enforce.hooks.core_sched_cookies import CookieManager
from koordinator.node.core_scheduling import CREATE, NO_COOKIE, SHARE_FROM, SHARE_TO, CoreScheduling
from koordinator.node.errors import MissingFileError
from tests.koordlet.enforce.hooks.hook_fixtures import rules
from tests.koordlet.enforce.hooks.test_core_sched import core_policy
from tests.node.core_scheduling_kernel import CoreSchedulingKernel

AGENT = 4242
ON = rules(policy=core_policy(), group_identity_switch=0, knows_pods=True)
OFF = rules(policy=core_policy(ls={"enable": False}), group_identity_switch=0, knows_pods=True)


class KilledError(Exception):
    """The agent was killed in the middle of a round."""


class IsolatedNode:
    """Pods of one sandbox and one container each, and what the manager of their cookies did."""

    def __init__(self, **options: Any) -> None:
        self.kernel = CoreSchedulingKernel()
        self.cgroups: dict[str, list[int]] = {}
        self.pods: list[PodContext] = []
        self.counted: list[tuple[str, str]] = []
        self.records: list[str] = []
        self.manager = self.make(**options)

    def make(self, *, is_enabled: bool = True, observe_only: bool = False) -> CookieManager:
        """Of an agent that has just started."""
        return CookieManager(
            CoreScheduling(self.kernel),
            self._processes,
            own_process=AGENT,
            is_enabled=is_enabled,
            observe_only=observe_only,
            count=lambda group, status: self.counted.append((group, status)),
            record=self.records.append,
        )

    def run_pod(self, name: str, *processes: int, group: str = "", qos: str = "LS") -> PodContext:
        """The first process is the sandbox's."""
        containers = (
            ContainerContext("", f"{name}/sandbox", is_sandbox=True, id="sandbox"),
            ContainerContext("c", f"{name}/c", id=f"containerd://{name}"),
        )
        labels = {"koordinator.sh/core-sched-group-id": group}
        pod = PodContext("shop", name, name, labels, {}, name, qos_class_of_name(qos), "Burstable", containers)
        self.pods.append(pod)
        self.cgroups[f"{name}/sandbox"], self.cgroups[f"{name}/c"] = list(processes[:1]), list(processes[1:])
        self.kernel.cookies |= dict.fromkeys(processes, NO_COOKIE)
        return pod

    def follow(self, given: Any = ON) -> dict[int, int]:
        """The cookies after one round."""
        self.manager.follow(self.pods, given)
        return self.kernel.cookies

    def _processes(self, cgroup: str) -> list[int]:
        if cgroup not in self.cgroups:
            raise MissingFileError(cgroup, "does not exist")
        return self.cgroups[cgroup]


def test_pods_of_a_group_share_a_cookie_and_others_do_not() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2, group="x")
    node.run_pod("b", 3, 4, group="x")
    node.run_pod("c", 5, 6, group="y")
    cookies = node.follow()
    assert cookies[1] == cookies[2] == cookies[3] == cookies[4] != cookies[5]
    assert cookies[5] == cookies[6] != NO_COOKIE


def test_a_process_that_starts_later_joins_its_group() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    before = dict(node.follow())
    node.cgroups["a/c"].append(7)
    node.kernel.cookies[7] = NO_COOKIE
    assert node.follow() == {**before, 7: before[1]}


def test_a_steady_node_is_only_looked_at() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.follow()
    node.kernel.calls.clear()
    node.follow()
    assert node.kernel.changes() == []


def test_a_restart_takes_over_what_is_there() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2, group="x")
    node.run_pod("b", 3, 4, group="y")
    before = dict(node.follow())
    node.manager = node.make()
    assert node.follow() == before


@pytest.mark.parametrize("restarts", [False, True])
def test_switched_off_in_the_nodeslo_takes_all_cookies_away(restarts: bool) -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.follow()
    if restarts:
        node.manager = node.make()
    assert node.follow(OFF) == {1: NO_COOKIE, 2: NO_COOKIE}


def test_the_gate_off_takes_them_away_and_looks_no_more() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.follow()
    node.manager = node.make(is_enabled=False)
    assert node.follow() == {1: NO_COOKIE, 2: NO_COOKIE}
    node.follow()
    node.kernel.calls.clear()
    node.follow()
    assert node.kernel.calls == []


def test_nothing_is_taken_away_while_the_policy_is_not_known() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    before = dict(node.follow())
    assert node.follow(rules(policy=None, knows_pods=True)) == before


@pytest.mark.parametrize("calls", range(8))
def test_a_kill_at_any_call_leaves_what_the_next_agent_finishes(calls: int) -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2, 3, group="x")
    node.run_pod("b", 4, 5, group="y")

    def kill(command: int, _: int) -> None:
        if command in (CREATE, SHARE_FROM, SHARE_TO) and len(node.kernel.changes()) == calls:
            raise KilledError

    node.kernel.before = kill
    with suppress(KilledError):
        node.follow()
    node.kernel.before = lambda _, __: None
    node.manager = node.make()
    cookies = node.follow()
    assert cookies[1] == cookies[2] == cookies[3] != cookies[4] == cookies[5]
    assert NO_COOKIE not in cookies.values()


def test_the_gate_off_waits_for_what_kubelet_tells() -> None:
    """A runtime may start a pod before that."""
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.follow()
    node.manager, pods = node.make(is_enabled=False), list(node.pods)
    node.pods.clear()
    node.follow(rules(policy=core_policy(), knows_pods=False))
    node.pods.extend(pods)
    assert node.follow() == {1: NO_COOKIE, 2: NO_COOKIE}


def test_a_cookie_that_could_not_be_taken_away_is_still_the_agent_s() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.follow()
    node.kernel.before = lambda command, process: _refuse() if (command, process) == (SHARE_TO, 2) else None
    node.follow(OFF)
    node.kernel.before = lambda _, __: None
    assert node.follow(OFF) == {1: NO_COOKIE, 2: NO_COOKIE}


def test_system_pods_and_the_agent_itself_are_left_alone() -> None:
    node = IsolatedNode()
    node.run_pod("proxy", 1, 2, qos="SYSTEM")
    node.run_pod("agent", 3, AGENT)
    node.kernel.cookies[2] = 99
    cookies = node.follow()
    assert (cookies[2], cookies[AGENT]) == (99, NO_COOKIE)


def test_group_identity_goes_first() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    assert node.follow(rules(policy=core_policy(), group_identity_switch=1, knows_pods=True)) == {
        1: NO_COOKIE,
        2: NO_COOKIE,
    }


def test_observing_changes_nothing() -> None:
    node = IsolatedNode(observe_only=True)
    node.run_pod("a", 1, 2)
    assert node.follow() == {1: NO_COOKIE, 2: NO_COOKIE}
    assert node.records == []


def test_a_container_that_has_gone_is_nothing_to_say() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    del node.cgroups["a/c"]
    assert node.follow()[1] != NO_COOKIE


def test_a_first_source_that_ends_leaves_the_second() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    cookie = node.follow()[1]
    node.cgroups["a/c"].append(7)
    node.kernel.cookies[7] = NO_COOKIE

    def end(command: int, process: int) -> None:
        if command == SHARE_FROM and process == 1:
            node.kernel.cookies.pop(1, None)

    node.kernel.before = end
    assert node.follow()[7] == cookie


def test_what_the_kernel_refuses_is_counted_and_tried_again() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.kernel.before = lambda command, _: _refuse() if command == CREATE else None
    node.follow()
    node.kernel.before = lambda _, __: None
    node.follow()
    assert node.counted == [("", "failed"), ("", "succeeded")]


def test_a_kernel_without_it_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2)
    node.kernel.code = errno.EINVAL
    with caplog.at_level(logging.WARNING):
        node.follow()
        node.follow()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["no core scheduling"]


def test_containers_are_shown_with_their_cookies() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2, group="x")
    node.run_pod("proxy", 3, 4, qos="SYSTEM")
    cookie = str(node.follow()[1])
    assert list(node.manager.rows()) == [
        (("a", "shop", "a", "", "sandbox", "x", cookie), 1.0),
        (("a", "shop", "a", "c", "containerd://a", "x", cookie), 1.0),
    ]


def test_what_was_done_is_recorded() -> None:
    node = IsolatedNode()
    node.run_pod("a", 1, 2, group="x")
    cookie = node.follow()[1]
    what = "processes of the core scheduling group 'x' get a new cookie"
    assert node.records == [f"{what}: the cookie {cookie} for 2 processes"]


def _refuse() -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")
