"""GroupIdentity: values by class, the pod's own annotation, the kernel's switches, and what is left when it is off."""

from __future__ import annotations

import pytest

from koordinator.koordlet.enforce.hooks import group_identity
from koordinator.koordlet.enforce.hooks.contexts import HookError
from koordinator.node.kernel_files import SCHED_CORE, SCHED_GROUP_IDENTITY
from tests.koordlet.enforce.hooks.hook_fixtures import CPU_QOS, rules, running
from tests.koordlet.enforce.strategies.qos_fixtures import policy


@pytest.mark.parametrize(
    ("qos", "kubernetes_qos", "value"),
    [
        ("LSE", "Guaranteed", 2),
        ("LSR", "Guaranteed", 2),
        ("LS", "Guaranteed", 1),
        ("BE", "BestEffort", -1),
        ("", "Guaranteed", 2),
        ("", "Burstable", 1),
        ("", "BestEffort", -1),
        ("SYSTEM", "Burstable", 1),
    ],
)
def test_a_pod_has_the_value_of_its_class(qos: str, kubernetes_qos: str, value: int) -> None:
    change = group_identity.pod(running(qos=qos, kubernetes_qos=kubernetes_qos), rules())
    assert change is not None
    assert change.bvt == value


def test_a_guaranteed_pod_without_class_is_as_ls_where_lsr_is_off() -> None:
    off = policy(resourceQOSStrategy=CPU_QOS | {"lsrClass": {"cpuQOS": {"enable": False}}})
    change = group_identity.pod(running(qos="", kubernetes_qos="Guaranteed"), rules(policy=off))
    assert change is not None
    assert change.bvt == 1


@pytest.mark.parametrize(
    ("text", "value"), [('{"enable":true,"groupIdentity":-1}', -1), ('{"groupIdentity":2}', 0), ('{"enable":true}', 1)]
)
def test_an_ls_pod_may_say_its_own_value(text: str, value: int) -> None:
    pod = running(qos="LS", annotations={"koordinator.sh/cpuQOS": text})
    change = group_identity.pod(pod, rules())
    assert change is not None
    assert change.bvt == value


def test_a_best_effort_pod_may_not() -> None:
    pod = running(qos="BE", annotations={"koordinator.sh/cpuQOS": '{"enable":true,"groupIdentity":2}'})
    change = group_identity.pod(pod, rules())
    assert change is not None
    assert change.bvt == -1


@pytest.mark.parametrize("text", ["{", '{"enable":true,"groupIdentity":3}'])
def test_an_annotation_that_is_not_valid_names_itself(text: str) -> None:
    pod = running(annotations={"koordinator.sh/cpuQOS": text})
    with pytest.raises(HookError, match=r"koordinator\.sh/cpuQOS"):
        group_identity.pod(pod, rules())


def test_the_folder_of_guaranteed_pods_stays_neutral() -> None:
    values = [group_identity.qos_folder(name, rules()) for name in ("Guaranteed", "Burstable", "BestEffort")]
    assert [change and change.bvt for change in values] == [0, 1, -1]


def test_nothing_is_written_where_policy_and_kernel_are_off() -> None:
    other = policy(resourceQOSStrategy=CPU_QOS | {"policies": {"cpuPolicy": "coreSched"}})
    assert group_identity.pod(running(), rules(policy=other, group_identity_switch=0)) is None
    change = group_identity.pod(running(), rules(policy=other, group_identity_switch=None))
    assert change is not None
    assert change.bvt == 0


def test_a_kernel_without_it_is_left_alone() -> None:
    assert group_identity.pod(running(), rules(has_group_identity=False)) is None
    assert group_identity.release(rules(has_group_identity=False)) is None


def test_core_scheduling_is_switched_off_where_it_is_switched_on() -> None:
    settings = group_identity.node(rules(has_core_scheduling_switch=True))
    assert {setting.target.file: setting.value for setting in settings} == {SCHED_GROUP_IDENTITY: 1, SCHED_CORE: 0}
    assert group_identity.node(rules(group_identity_switch=None)) == []
