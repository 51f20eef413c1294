"""CoreSched: which pods share cores with which, and what brings their processes there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.enforce.hooks.contexts import ContainerContext, HookError
from koordinator.koordlet.enforce.hooks.core_sched import (
    Clear,
    Container,
    Give,
    Plan,
    check,
    group_of,
    node,
    plan,
    qos_folder,
    release,
)
from koordinator.node.kernel_files import SCHED_CORE, SCHED_GROUP_IDENTITY, Target
from tests.koordlet.enforce.hooks.hook_fixtures import rules, running
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.enforce.strategies.qos_fixtures import policy

ON = {"enable": True, "coreExpeller": False}


def core_policy(cpu_policy: str = "coreSched", **classes: Any) -> Any:
    """``ls``, ``lsr`` and ``be`` are the cpuQOS of their classes."""
    given = classes or {"lsr": ON, "ls": ON, "be": {**ON, "schedIdle": 1}}
    strategy = {f"{name}Class": {"cpuQOS": config} for name, config in given.items()}
    return policy(resourceQOSStrategy={"policies": {"cpuPolicy": cpu_policy}, **strategy})


def group(qos: str, labels: dict[str, str] | None = None, spec: Any = None, **given: Any) -> str | None:
    metadata = {"labels": {**({"koordinator.sh/qosClass": qos} if qos else {}), **(labels or {})}}
    return group_of(running("web", qos, metadata=metadata, **given), spec or core_policy())


def container(name: str, group_: str | None, *, is_sandbox: bool = False, **cookies: int) -> Container:
    """``p1=16``: process 1 has the cookie 16."""
    by_process = {int(process[1:]): cookie for process, cookie in cookies.items()}
    return Container(ContainerContext("c", is_sandbox=is_sandbox), running(name), group_, by_process)


def decide(known: dict[str, int], *containers: Container) -> Plan:
    """All cookies being the agent's."""
    return plan(containers, known, {cookie for each in containers for cookie in each.cookies.values()}, "why")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ""),
        ({"koordinator.sh/core-sched-group-id": "a"}, "a"),
        ({"koordinator.sh/core-sched-group-id": "a", "koordinator.sh/core-sched-policy": "exclusive"}, "web"),
        ({"koordinator.sh/core-sched-group-id": "a", "koordinator.sh/core-sched-policy": "none"}, None),
    ],
)
def test_the_labels_of_a_pod_say_its_group(labels: dict[str, str], expected: str | None) -> None:
    assert group("LS", labels) == expected


@pytest.mark.parametrize("qos", ["LSE", "LSR", "LS", "BE"])
def test_a_class_that_is_off_has_no_group(qos: str) -> None:
    spec = core_policy(ls=ON) if qos == "BE" else core_policy(be=ON)
    assert group(qos, spec=spec) is None


def test_another_policy_of_the_node_means_no_groups() -> None:
    assert group("LS", spec=core_policy("groupIdentity")) is None


def test_a_class_that_expels_others_has_a_group_apart() -> None:
    spec = core_policy(ls={"enable": True, "coreExpeller": True})
    assert group("LS", {"koordinator.sh/core-sched-group-id": "a"}, spec) == "a-expeller"


@pytest.mark.parametrize(
    ("kubernetes_qos", "classes", "has_group"),
    [
        ("Guaranteed", {"lsr": ON}, True),
        ("Guaranteed", {"ls": ON}, True),
        ("Guaranteed", {"be": ON}, False),
        ("Burstable", {"ls": ON}, True),
        ("Burstable", {"lsr": ON}, False),
        ("BestEffort", {"be": ON}, True),
    ],
)
def test_a_pod_without_a_class_goes_by_that_of_kubernetes(
    kubernetes_qos: str, classes: dict[str, Any], has_group: bool
) -> None:
    assert (group("", spec=core_policy(**classes), kubernetes_qos=kubernetes_qos) is not None) is has_group


def test_a_label_that_means_nothing_is_named() -> None:
    pod = running("web", metadata={"labels": {"koordinator.sh/core-sched-policy": "alone"}})
    with pytest.raises(
        HookError, match=r"metadata.labels\[koordinator.sh/core-sched-policy\]: 'alone' is neither none"
    ):
        check(pod, rules())


@pytest.mark.parametrize(("kubernetes_qos", "expected"), [("Guaranteed", 0), ("Burstable", 0), ("BestEffort", 1)])
def test_idle_folders(kubernetes_qos: str, expected: int) -> None:
    change = qos_folder(kubernetes_qos, rules(policy=core_policy()))
    assert change is not None
    assert change.cpu_idle == expected


@pytest.mark.parametrize(("cpu_policy", "expected"), [("coreSched", 0), ("groupIdentity", None)])
def test_with_the_gate_off_idle_folders_are_no_longer_so(cpu_policy: str, expected: int | None) -> None:
    change = release(rules(policy=core_policy(cpu_policy, be={**ON, "schedIdle": 1})))
    assert (change.cpu_idle if change is not None else None) == expected


def test_switches_and_idle_folders_reach_the_kernel(tmp_path: Path) -> None:
    """Group identity is off before core scheduling is on, since the kernel excludes one by the other."""
    node = HookedNode(tmp_path, CoreSched=True, GroupIdentity=False)
    for switch, value in (("sched_group_identity_enabled", "1"), ("sched_core", "0")):
        node.machine.write(f"/proc/sys/kernel/{switch}", f"{value}\n")
    shown = []
    for _ in range(2):
        present = node.executor.present(Target(SCHED_GROUP_IDENTITY))
        node.rules = rules(policy=core_policy(), group_identity_switch=present, has_core_scheduling_switch=True)
        node.run_hooks()
        shown.append([node.executor.present(Target(file)) for file in (SCHED_GROUP_IDENTITY, SCHED_CORE)])
    assert shown == [[0, 0], [0, 1]]
    assert node.shown("kubepods/besteffort", "cpu.idle") == "1"


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ({}, {"sched_group_identity_enabled": 0}),
        (
            {"group_identity_switch": 0, "has_core_scheduling_switch": True},
            {"sched_group_identity_enabled": 0, "sched_core": 1},
        ),
        ({"group_identity_switch": None, "has_core_scheduling_switch": True}, {"sched_core": 1}),
        ({"group_identity_switch": None, "has_core_scheduling_feature": True}, {"sched_features": 1}),
        ({"group_identity_switch": None}, {}),
    ],
)
def test_the_kernel_s_switches(kernel: dict[str, Any], expected: dict[str, int]) -> None:
    settings = node(rules(policy=core_policy(), **kernel))
    assert {setting.target.file.key: setting.value for setting in settings} == expected


def test_the_switches_stay_while_no_class_is_on() -> None:
    assert node(rules(policy=core_policy(ls={"enable": False}), has_core_scheduling_switch=True)) == []


def test_a_group_without_a_cookie_gets_a_new_one() -> None:
    decided = decide({}, container("a", "g", p1=0, p2=0), container("b", "g", p3=0))
    assert decided.actions == (Give("g", (1, 2, 3)),)


def test_a_group_keeps_its_cookie_for_new_processes() -> None:
    decided = decide({"g": 16}, container("a", "g", p1=16, p2=0))
    assert decided.actions == (Give("g", (2,), 16, (1,)),)


def test_after_a_restart_the_first_cookie_of_a_group_counts() -> None:
    decided = decide({}, container("a", "g", p1=0, p2=16), container("b", "g", p3=32))
    assert decided.actions == (Give("g", (1, 3), 16, (2,)),)


def test_a_pod_that_changes_its_group_does_not_take_the_cookie_along() -> None:
    decided = decide({"g": 16}, container("a", "new", p1=16), container("b", "g", p2=16))
    assert decided.actions == (Give("new", (1,)),)
    assert decided.cookies == {"g": 16}


def test_a_cookie_that_two_groups_have_got_stays_with_one() -> None:
    """All processes of one ended, and the kernel gave the number away again before the round was over."""
    decided = decide({"a": 32, "b": 32}, container("1", "a", p1=32), container("2", "b", p2=32))
    assert decided.actions == (Give("b", (2,)),)
    assert decided.cookies == {"a": 32}


def test_a_number_that_another_process_has_got_is_no_source() -> None:
    """Process 1 had the cookie 16 and ended; what has its number now has none."""
    decided = decide({"g": 16}, container("a", "g", p1=0))
    assert decided.actions == (Give("g", (1,)),)


def test_what_is_as_it_should_be_is_left_alone() -> None:
    assert decide({"g": 16}, container("a", "g", p1=16), container("b", None, p2=0), container("c", "h")).actions == ()


def test_a_pod_without_a_group_loses_the_cookie_that_the_agent_gave() -> None:
    """Process 2 has made its own, as browsers and virtual machine monitors do."""
    (action,) = plan([container("a", None, p1=16, p2=48, p3=0)], {}, {16}, "why").actions
    assert action == Clear((1,), "why")


def test_after_a_restart_the_cookies_of_sandboxes_are_the_agent_s() -> None:
    containers = [container("a", None, is_sandbox=True, p1=16), container("a", None, p2=16, p3=48)]
    (action,) = plan(containers, {}, set(), "why").actions
    assert action.processes == (1, 2)


_GROUPS = st.sampled_from(["a", "b", "c", None])
_COOKIES = st.lists(st.sampled_from([0, 16, 32, 48]), max_size=4)


@given(
    st.lists(st.tuples(_GROUPS, _COOKIES), max_size=6),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from([16, 32])),
)
def test_one_round_separates_all_groups(drawn: list[tuple[str | None, list[int]]], known: dict[str, int]) -> None:
    """Whatever processes have: afterwards each group has one cookie, no two the same one, and the others have none."""
    process, containers = 0, []
    for number, (group_, cookies) in enumerate(drawn):
        numbered = {process + index: cookie for index, cookie in enumerate(cookies)}
        process += len(cookies)
        containers.append(Container(ContainerContext("c"), running(f"{number}"), group_, numbered))
    after = {each: cookie for one in containers for each, cookie in one.cookies.items()}
    for number, action in enumerate(decide(known, *containers).actions):
        if isinstance(action, Give) and action.cookie is not None:
            assert all(after[source] == action.cookie for source in action.sources)
        cookie = 0 if isinstance(action, Clear) else action.cookie or 1000 + number
        after |= dict.fromkeys(action.processes, cookie)
    by_group: dict[str | None, set[int]] = {}
    for one in containers:
        if one.cookies:
            by_group.setdefault(one.group, set()).update(after[each] for each in one.cookies)
    assert by_group.pop(None, {0}) == {0}
    assert all(len(cookies) == 1 and cookies != {0} for cookies in by_group.values())
    assert len(set().union(*by_group.values())) == len(by_group)
