"""Whatever the pods and the features are: what no feature changes is as the kubelet wrote it, and what one has changed
is so again when it is off."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.pods.listing import look_in
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.model.pod_grants import Grant
from koordinator.node.kernel_files import quota_of_milli, shares_of_milli
from tests.examples import examples
from tests.koordlet.enforce.hooks.hook_fixtures import rules
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.real_world.pods import PodShape, container, sidecar

_AMOUNTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(["1m", "250m", "1", "2500m"]), "memory": st.sampled_from(["16Mi", "1Gi"])}
)
_BATCH = st.sampled_from([None, {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}])
_QOS = st.sampled_from(["", "LSE", "LSR", "LS", "BE"])
_GATES = ("GroupIdentity", "CPUSetAllocator", "BatchResource", "CPUNormalization")
_NO_LIMIT = "9223372036854771712"


@st.composite
def _shapes(draw: st.DrawFn) -> PodShape:
    batch = draw(_BATCH)

    def resources() -> dict[str, Any]:
        return {"limits": {**draw(_AMOUNTS), **(batch or {})}, "requests": {**draw(_AMOUNTS), **(batch or {})}}

    spec: dict[str, Any] = {"containers": [container(f"c{n}", **resources()) for n in range(draw(st.integers(1, 3)))]}
    spec["initContainers"] = [sidecar(f"s{number}", **resources()) for number in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    if draw(st.booleans()):
        spec["resources"] = {"limits": draw(_AMOUNTS)}
    annotations = {}
    if draw(st.booleans()):
        annotations["scheduling.koordinator.sh/resource-status"] = '{"cpuset": "2-3"}'
    return PodShape("drawn", "drawn", 0, spec, {"koordinator.sh/qosClass": draw(_QOS)}, annotations)


class _Node(HookedNode):
    """A kubelet has made the pods; ``period`` of its quotas in microseconds."""

    def make(self, shapes: list[PodShape], period: int) -> None:
        documents = [shape.running("shop", "node-1", f"uid-{number}") for number, shape in enumerate(shapes)]
        pods = [convert(document, Pod) for document in documents]
        for pod in node_pods(pods, self.layout):
            for folder, grant in _grants(pod).items():
                self.add_cgroup(folder)
                self._write("cpu", folder, "cpu.cfs_period_us", period)
                self._write("cpu", folder, "cpu.cfs_quota_us", quota_of_milli(grant.cpu_limit or 0, period))
                self._write("cpu", folder, "cpu.shares", shares_of_milli(grant.cpu_request))
                self._write("memory", folder, "memory.limit_in_bytes", grant.memory_limit or _NO_LIMIT)
        self.pods = list(node_pods(pods, self.layout, look_in(self.layout)))

    def rounds(self) -> None:
        for _ in range(2):
            self.run_hooks()

    def _write(self, controller: str, folder: str, name: str, value: object) -> None:
        self.machine.write(f"/sys/fs/cgroup/{controller}/{folder}/{name}", f"{value}\n")


def _grants(pod: NodePod) -> dict[str, Grant]:
    return {pod.cgroup: pod.grant.pod} | {each.cgroup: pod.grant.containers[each.name] for each in pod.running}


def _compared(node: HookedNode) -> dict[str, str]:
    """CPU suppress gives the CPUs of best-effort pods back. The kernel takes -1 for no limit of memory, and shows the
    highest one."""
    files = node.everything().items()
    kept = {path: text for path, text in files if not path.startswith("cpuset/kubepods/besteffort")}
    return {path: _NO_LIMIT if path.startswith("memory/") and text == "-1" else text for path, text in kept.items()}


@given(
    st.lists(_shapes(), min_size=1, max_size=3),
    st.sampled_from([100_000, 20_000]),
    st.lists(st.sets(st.sampled_from(_GATES)), min_size=1, max_size=3),
    st.sampled_from([None, 1.2, 2.0]),
)
@settings(max_examples=examples(40), deadline=None)
def test_what_features_have_changed_is_the_kubelets_again(
    shapes: list[PodShape], period: int, runs: list[set[str]], ratio: float | None
) -> None:
    off = dict.fromkeys(_GATES, False)
    with tempfile.TemporaryDirectory() as folder:
        node = _Node(Path(folder), None, **off)
        node.make(shapes, period)
        before = _compared(node)
        for gates in [*runs, set[str]()]:
            # Another koordlet each time, as gates are read at the start.
            agent = _Node(Path(folder), None, **off | dict.fromkeys(gates, True))
            agent.pods, agent.rules = node.pods, replace(rules(), normalization_ratio=ratio)
            agent.rounds()
            if not gates:
                assert _compared(agent) == before
