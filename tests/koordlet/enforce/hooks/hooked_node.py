"""A node's cgroup folders below a temporary one, with all that keeps its pods at what the hooks say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from koordinator.api.modification import Modification
from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.decision_report import DecisionReport
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks.built_in import make_hooks
from koordinator.koordlet.enforce.hooks.devices import rdma_hook
from koordinator.koordlet.enforce.hooks.reconciler import Reconciler
from koordinator.koordlet.enforce.hooks.registry import Hook, Hooks
from koordinator.koordlet.enforce.hooks.resized_pods import ResizedPods
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources
from koordinator.koordlet.enforce.policy import EnforcedPolicy
from koordinator.koordlet.features import make_features
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.pods.kubelet_bandwidths import KubeletBandwidths
from koordinator.koordlet.pods.listing import look_in
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.kube.event_series import EventKey
from koordinator.kube.events import EventBroadcaster, EventRecorder
from koordinator.model.pod_grants import Grant
from koordinator.node.cgroup_layout import CgroupDriver, CgroupVersion
from koordinator.node.errors import MissingFileError
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import quota_of_milli
from koordinator.node.kernel_writer import KernelFiles, MachineFiles
from koordinator.node.kubelet import KubeletConfiguration
from koordinator.node.rdma import DeviceFile
from tests.koordlet.enforce.hooks.hook_fixtures import node_pod, rules
from tests.node.machine import FakeMachine

FILES = {
    "cpu": {
        "cpu.shares": "1024",
        "cpu.cfs_quota_us": "-1",
        "cpu.cfs_period_us": "100000",
        "cpu.bvt_warp_ns": "0",
        "cpu.idle": "0",
    },
    "cpuset": {"cpuset.cpus": "0-7"},
    "memory": {"memory.limit_in_bytes": "9223372036854771712"},
}
"""Of each cgroup, as a kernel of Anolis OS makes it."""


def no_device(path: str) -> DeviceFile:
    raise MissingFileError(path, "does not exist")


class HookedNode:
    """cgroup version 1. ``rules`` may be replaced; gates are given by name."""

    installed: Sequence[Hook] = ()
    """Of other packages."""

    def __init__(self, root: Path, files: KernelFiles | None = None, **gates: bool) -> None:
        self.machine = FakeMachine(root)
        self.layout = self.machine.layout(CgroupVersion.V1, CgroupDriver.CGROUPFS)
        self.clock = ManualClock()
        self.rules: Rules = rules()
        self.kubelet_configuration: KubeletConfiguration | None = None
        self.pods: list[NodePod] = []
        self.observed: list[tuple[str, str, str]] = []
        self.notes: list[str] = []
        """Of the events that were recorded."""
        codec = KernelFileCodec(self.machine.host, self.layout, 4096)
        self.executor = Executor(files or MachineFiles(), codec, self.clock)
        features = make_features()
        features.set(gates)
        self.hooks: Hooks = make_hooks(features, rdma_hook(no_device, no_device), self.installed)
        self.reconciler = Reconciler(
            self.hooks,
            SnapshotSources(
                states=cast("StatesInformer", self),
                policy=EnforcedPolicy(),
                usage=cast("RecentUsage", None),
                layout=self.layout,
                executor=self.executor,
                bandwidths=KubeletBandwidths(self.executor, self),
                topology=lambda: None,
            ),
            lambda: self.rules,
            DecisionReport("node", EventRecorder(cast("EventBroadcaster", self), "test")),
            self.clock,
            lambda level, kind, status, _: self.observed.append((level, kind, status)),
        )
        self.resized = ResizedPods(self.executor, self.clock)
        for folder in ("kubepods", "kubepods/burstable", "kubepods/besteffort"):
            self.add_cgroup(folder)

    def run_hooks(self) -> None:
        """For all pods, and what follows."""
        for _ in self.reconciler.submit():
            pass
        self.executor.apply()
        self.reconciler.after_apply()

    def starting(self, *, fails: bool = False) -> StartingHooks:
        """What a runtime asks."""
        parts = self.reconciler, self.resized, self.clock
        return StartingHooks(self.hooks, lambda: self.rules, *parts, lambda *_: None, fails=fails)

    def add_cgroup(self, folder: str) -> None:
        for controller, files in FILES.items():
            for name, content in files.items():
                self.machine.write(f"/sys/fs/cgroup/{controller}/{folder}/{name}", f"{content}\n")

    def run_pod(self, name: str, qos: str, **given: Any) -> NodePod:
        """A pod that runs, its sandbox and its container."""
        pod = node_pod(name, qos, **given)
        for folder in (pod.cgroup, f"{pod.cgroup}/sandbox-{name}", *(each.cgroup for each in pod.running)):
            self.add_cgroup(folder)
        (pod,) = node_pods([pod.pod], self.layout, look_in(self.layout))
        self.pods.append(pod)
        self.write_quota(pod.cgroup, pod.grant.pod)
        for container in pod.running:
            self.write_quota(container.cgroup, pod.grant.containers.get(container.name, Grant()))
        return pod

    def write_quota(self, folder: str, grant: Grant) -> None:
        """As the kubelet does."""
        quota = quota_of_milli(grant.cpu_limit or 0)
        self.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.cfs_quota_us", f"{quota}\n")

    def shown(self, folder: str, name: str) -> str:
        controller = next(key for key, files in FILES.items() if name in files)
        return Path(self.layout.folder(controller, folder), name).read_text().strip()

    def of_pod(self, pod: NodePod, name: str) -> list[str]:
        """A file of the pod, of its sandbox and of its container."""
        return [
            self.shown(folder, name)
            for folder in (pod.cgroup, f"{pod.cgroup}/sandbox-{pod.uid}", pod.containers[0].cgroup)
        ]

    def everything(self) -> dict[str, str]:
        """All files and what is in them."""
        root = Path(self.machine.host.cgroup)
        files = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        return {str(file.relative_to(root)): file.read_text().strip() for file in files}

    def record(self, key: EventKey, note: str, modification: Modification | None = None) -> None:
        """In place of what writes events."""
        self.notes.append(note)
