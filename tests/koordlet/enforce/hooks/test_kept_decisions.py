"""What the hooks have decided of a pod holds while nothing that it follows from has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_layout import CgroupDriver
from koordinator.node.kubelet import KubeletConfiguration
from tests.koordlet.enforce.hooks.hooked_node import HookedNode


class CountedNode(HookedNode):
    """Two pods, of which the first is LSR with CPUs of its own."""

    def __init__(self, root: Path, **gates: bool) -> None:
        super().__init__(root, None, **gates)
        status = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "1-2"}'}
        self.first = self.run_pod("first", "LSR", annotations=status)
        self.second = self.run_pod("second", "LS")

    def hooked(self) -> int:
        """How many calls of hooks for pods, containers and sandboxes one pass takes."""
        self.observed.clear()
        self.run_hooks()
        return sum(level in ("pod", "container", "sandbox") for level, _, _ in self.observed)

    def replace(self, pod: NodePod) -> None:
        """As the listing does where anything of a pod has changed."""
        self.pods = [replace(pod) if each is pod else each for each in self.pods]


def test_a_pass_without_a_change_calls_no_hook_of_a_pod(tmp_path: Path) -> None:
    node = CountedNode(tmp_path)
    assert node.hooked() > 0
    assert node.hooked() == 0


def test_a_pod_that_has_changed_costs_its_own_calls_alone(tmp_path: Path) -> None:
    node = CountedNode(tmp_path)
    both = node.hooked()
    node.replace(node.first)
    assert 0 < node.hooked() < both


def test_another_rule_is_asked_for_all(tmp_path: Path) -> None:
    node = CountedNode(tmp_path)
    both = node.hooked()
    node.rules = replace(node.rules, hami_library="another")
    assert node.hooked() == both


def test_the_time_is_no_rule(tmp_path: Path) -> None:
    node = CountedNode(tmp_path)
    node.hooked()
    node.rules = replace(node.rules, now=node.rules.now + 1.0)
    assert node.hooked() == 0


def test_another_kubelet_configuration_is_another_decision(tmp_path: Path) -> None:
    """The quotas that the hooks scale are others."""
    node = CountedNode(tmp_path, CPUNormalization=True)
    node.rules = replace(node.rules, normalization_ratio=1.5)
    limited = node.run_pod("limited", "LS", resources={"cpu": "3"})
    node.hooked()
    assert node.shown(limited.cgroup, "cpu.cfs_quota_us") == "200000"
    node.kubelet_configuration = KubeletConfiguration(CgroupDriver.CGROUPFS, "", False, {})
    assert node.hooked() > 0


def test_what_is_kept_is_still_desired(tmp_path: Path) -> None:
    """By the executor, which corrects what another program has written."""
    node = CountedNode(tmp_path)
    node.hooked()
    container = node.first.running[0].cgroup
    assert node.shown(container, "cpuset.cpus") == "1-2"
    node.machine.write(f"/sys/fs/cgroup/cpuset/{container}/cpuset.cpus", "0-7\n")
    node.executor.look_again(container)
    assert node.hooked() == 0
    assert node.shown(container, "cpuset.cpus") == "1-2"
