"""Pods as people have them on a node whose kubelet has written their quotas: what features leave of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth, KubeletBandwidths
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.cgroup_layout import CgroupDriver
from koordinator.node.kernel_files import quota_of_milli
from koordinator.node.kubelet import KubeletConfiguration
from tests.koordlet.enforce.hooks.hook_fixtures import LAYOUT
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.real_world.pods import PODS, pod_shape

NO_QUOTA = KubeletConfiguration(CgroupDriver.SYSTEMD, "", False, {})
LEFT_ALONE = {"CPUSetAllocator": False, "BatchResource": False, "GroupIdentity": False}


class KubeletNode(HookedNode):
    """A node with a pod of each shape; ``period`` of its kubelet in microseconds, which enforces limits or not."""

    def __init__(self, root: Path, period: int = 100_000, *, enforces: bool = True, **gates: bool) -> None:
        super().__init__(root, None, **gates)
        self.rules = Rules()
        self.period, self.enforces = period, enforces
        if not enforces:
            self.kubelet_configuration = NO_QUOTA
        for shape in PODS:
            self.add(shape.running("shop", "node-1", f"uid-{shape.name}"))

    def add(self, document: dict[str, Any]) -> NodePod:
        (pod,) = node_pods([convert(document, Pod)], LAYOUT)
        self.pods.append(pod)
        for folder in _limits(pod):
            self.add_cgroup(folder)
        self.give(pod)
        return pod

    def give(self, pod: NodePod) -> None:
        """What the kubelet writes."""
        for folder, limit in _limits(pod).items():
            quota = quota_of_milli(limit or 0, self.period) if self.enforces else -1
            self.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.cfs_quota_us", f"{quota}\n")
            self.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.cfs_period_us", f"{self.period}\n")

    def again(self, root: Path, **gates: bool) -> HookedNode:
        """Another koordlet on the same files."""
        other = HookedNode(root, None, **gates)
        other.rules, other.pods, other.kubelet_configuration = Rules(), self.pods, self.kubelet_configuration
        return other


def _limits(pod: NodePod) -> dict[str, int | None]:
    """Milli-CPU of the pod's folder, and of those of its containers that run."""
    running = [each for each in (*pod.containers, *pod.init_containers) if not each.has_ended]
    limits = {each.cgroup: pod.grant.containers[each.name].cpu_limit for each in running}
    return {pod.cgroup: pod.grant.pod.cpu_limit} | limits


@pytest.fixture(params=[(100_000, True), (20_000, True), (100_000, False)], ids=["default", "20 ms", "no quota"])
def kubelet(request: pytest.FixtureRequest) -> dict[str, Any]:
    period, enforces = request.param
    return {"period": period, "enforces": enforces}


def test_nothing_is_written_while_no_feature_is_on(tmp_path: Path, kubelet: dict[str, Any]) -> None:
    node = KubeletNode(tmp_path, **kubelet, **LEFT_ALONE)
    before = node.everything()
    node.run_hooks()
    assert node.everything() == before


def test_a_ratio_divides_what_the_kubelet_gives_and_goes_again_with_another_koordlet(
    tmp_path: Path, kubelet: dict[str, Any]
) -> None:
    node = KubeletNode(tmp_path, **kubelet, **LEFT_ALONE, CPUNormalization=True)
    before = node.everything()
    node.rules = replace(node.rules, normalization_ratio=2.0)
    node.run_hooks()
    node.run_hooks()
    quotas = {
        path: int(text) for path, text in before.items() if path.endswith("cfs_quota_us") and "uid-pinned" not in path
    }
    divided = {path: str(max(-(-quota // 2), 1000)) for path, quota in quotas.items() if quota > 0}
    assert bool(divided) == kubelet["enforces"]
    assert node.everything() == before | divided
    for other in (node.again(tmp_path, **LEFT_ALONE), node.again(tmp_path, **LEFT_ALONE, CPUNormalization=True)):
        other.run_hooks()
        assert other.everything() == before


def test_where_the_kubelet_gives_no_quota_there_is_none_whatever_is_known_of_it(tmp_path: Path) -> None:
    """Its configuration may not be queried, and its static CPU manager lifts the quotas of some pods."""
    node = KubeletNode(tmp_path, enforces=False)
    node.kubelet_configuration = None
    web = next(pod for pod in node.pods if pod.uid == "uid-sidecar")
    (found,) = KubeletBandwidths(node.executor, node).of_each([web])
    assert found[web.cgroup] == Bandwidth(-1)


def test_a_resize_is_the_new_base(tmp_path: Path) -> None:
    node = KubeletNode(tmp_path, **LEFT_ALONE, CPUNormalization=True)
    node.rules = replace(node.rules, normalization_ratio=2.0)
    node.run_hooks()
    document = pod_shape("burstable").running("shop", "node-1", "uid-burstable")
    document["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    (resized,) = node_pods([convert(document, Pod)], LAYOUT)
    node.give(resized)
    node.pods = [resized if pod.uid == resized.uid else pod for pod in node.pods]
    node.run_hooks()
    assert node.shown(resized.cgroup, "cpu.cfs_quota_us") == "100000"


def test_what_the_kubelet_has_just_written_is_not_undone_before_its_pod_is_listed(tmp_path: Path) -> None:
    """It raises the pod, and then its container: version 1 refuses that where the pod has been lowered again."""
    node = KubeletNode(tmp_path, **LEFT_ALONE, CPUNormalization=True)
    node.rules = replace(node.rules, normalization_ratio=2.0)
    node.run_hooks()
    web = next(pod for pod in node.pods if pod.uid == "uid-burstable")
    node.machine.write(f"/sys/fs/cgroup/cpu/{web.cgroup}/cpu.cfs_quota_us", "200000\n")
    node.executor.look_again(web.cgroup, derived=False)
    node.executor.apply()
    assert node.shown(web.cgroup, "cpu.cfs_quota_us") == "200000"


def test_batch_resources_are_counted_in_the_period_of_the_cgroup(tmp_path: Path) -> None:
    node = KubeletNode(tmp_path, 20_000, CPUSetAllocator=False)
    node.run_hooks()
    batch = next(pod for pod in node.pods if pod.uid == "uid-batch")
    assert node.shown(batch.containers[0].cgroup, "cpu.cfs_quota_us") == "10000"
    assert node.shown(batch.cgroup, "cpu.cfs_quota_us") == "10000"
