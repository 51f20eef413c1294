"""What a pod is follows from its object in ``koordlet/pods`` alone: all others ask ``NodePod``, which keeps it."""

from __future__ import annotations

import ast
from pathlib import Path

import koordinator.koordlet
from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion

_PROGRAM = Path(koordinator.koordlet.__file__).parent
_OF_RAW_PODS = {
    *("qos_class_raw", "qos_class_with_default", "kubernetes_qos", "compute_kubernetes_qos"),
    *("priority_class_raw", "priority_class_with_default", "priority_value_with_default"),
    *("pod_requests", "pod_limits", "pod_grant", "is_static"),
}
_BELOW = ("koordinator.api", "koordinator.model")
_LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V2, CgroupDriver.SYSTEMD)


def test_only_the_picture_of_a_pod_is_made_of_raw_pods() -> None:
    """By what is imported of the API's and the model's modules."""
    users = set()
    for path in _PROGRAM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                ("koordinator.api", "koordinator.model")
            ):
                users |= {path.relative_to(_PROGRAM).parts[0] for name in node.names if name.name in _OF_RAW_PODS}
    assert users == {"pods"}


def _pod() -> NodePod:
    (made,) = node_pods([convert({"metadata": {"name": "a", "uid": "a"}}, Pod)], _LAYOUT)
    return made


def test_what_is_derived_is_worked_out_anew_when_it_is_given_something_else() -> None:
    calls: list[int] = []

    def name(pod: NodePod, number: int) -> str:
        calls.append(number)
        return f"{pod.uid}{number}"

    pod = _pod()
    assert [pod.derived(name, number) for number in (1, 1, 2, 2, 1)] == ["a1", "a1", "a2", "a2", "a1"]
    assert calls == [1, 2, 1]
    assert _pod().derived(name, 1) == "a1"
    assert calls == [1, 2, 1, 1]


def test_that_nothing_follows_is_kept_too() -> None:
    calls: list[NodePod] = []
    pod = _pod()
    assert [pod.derived(calls.append) for _ in range(2)] == [None, None]
    assert calls == [pod]
