"""GPUs by node and pod, and in the NodeMetric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from koordinator.koordlet.observe.gpu import GPUCollector
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import Series
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.report.node_metric import NodeMetricInput, node_metric_status
from koordinator.model.node_metric import CollectPolicy
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.nvml import GPU, NVML, GPUProcess
from tests.koordlet.observe.measured_machine import pod
from tests.node.machine import FakeMachine

CARDS = tuple(GPU(minor, f"GPU-{minor}", minor, 1000, "NVIDIA H200", f"0000:3b:0{minor}.0") for minor in range(2))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FakeGPUs:
    """Two cards, and the processes of a test."""

    gpus = CARDS

    def __init__(self, *processes: GPUProcess) -> None:
        self._processes = processes
        self.measurable: Sequence[GPU] = CARDS

    def processes(self) -> Mapping[GPU, Sequence[GPUProcess]]:
        return {card: [process for process in self._processes if process.gpu == card] for card in self.measurable}


def collector(root: Path, *processes: GPUProcess, pids: str = "7\n8\n") -> GPUCollector:
    """The container of pod a has the processes 7 and 8."""
    machine = FakeMachine(root)
    machine.write("/sys/fs/cgroup/a/c/cgroup.procs", pids)
    return GPUCollector(cast("NVML", FakeGPUs(*processes)), CgroupReader(machine.layout(CgroupVersion.V2), 4096))


def named(samples: Mapping[Series, float]) -> dict[str, float]:
    return {" ".join((series.kind.name, *series.values)): value for series, value in samples.items()}


IDLE = {
    "node_gpu_core_usage 0 GPU-0": 0,
    "node_gpu_memory_usage 0 GPU-0": 0,
    "node_gpu_core_usage 1 GPU-1": 0,
    "node_gpu_memory_usage 1 GPU-1": 0,
}


def test_idle_cards_are_the_nodes_and_nobody_elses(tmp_path: Path) -> None:
    found = collector(tmp_path).collect([pod("a")])
    assert (named(found.node), found.pods) == (IDLE, {})


def test_a_card_that_cannot_be_measured_has_no_samples(tmp_path: Path) -> None:
    """0 would say that nobody uses it."""
    cards = FakeGPUs()
    cards.measurable = CARDS[1:]
    machine = FakeMachine(tmp_path)
    found = GPUCollector(cast("NVML", cards), CgroupReader(machine.layout(CgroupVersion.V2), 4096)).collect([])
    assert set(named(found.node)) == {"node_gpu_core_usage 1 GPU-1", "node_gpu_memory_usage 1 GPU-1"}


def test_processes_of_containers_and_of_others(tmp_path: Path) -> None:
    processes = [GPUProcess(7, CARDS[0], 30, 100), GPUProcess(8, CARDS[0], 10, 50), GPUProcess(99, CARDS[0], 5, 1)]
    found = collector(tmp_path, *processes).collect([pod("a"), pod("gone")])
    assert named(found.node) == {**IDLE, "node_gpu_core_usage 0 GPU-0": 45, "node_gpu_memory_usage 0 GPU-0": 151}
    assert named(found.pods) == {
        "pod_gpu_core_usage a 0 GPU-0": 40,
        "pod_gpu_memory_usage a 0 GPU-0": 150,
    }


def test_a_process_on_two_cards(tmp_path: Path) -> None:
    found = collector(tmp_path, GPUProcess(7, CARDS[0], 30, 100), GPUProcess(7, CARDS[1], 20, 10)).collect([pod("a")])
    samples = named(found.pods)
    assert (samples["pod_gpu_core_usage a 0 GPU-0"], samples["pod_gpu_core_usage a 1 GPU-1"]) == (30, 20)


def test_gpus_in_the_node_metric(tmp_path: Path) -> None:
    cache = RingMetricCache({group: Retention(1, 600) for group in (kinds.NODE, kinds.PODS, kinds.MEMORY)}, 1 << 20)
    found = collector(tmp_path, GPUProcess(7, CARDS[0], 30, 500)).collect([pod("a")])
    at = round(NOW.timestamp() * 1000)
    one: NodePod = pod("a")
    cache.append(at, {kinds.NODE_CPU_USAGE.series(): 1.0, kinds.NODE_MEMORY_USAGE.series(): 1.0} | found.node)
    cache.append(at, {kinds.POD_CPU_USAGE.series(pod_uid="a"): 1.0} | found.pods)
    cache.append(at, {kinds.POD_MEMORY_USAGE.series(pod_uid="a"): 1.0})
    given = NodeMetricInput(CollectPolicy(durations=None), [one], gpus=CARDS)
    status = node_metric_status(cache, given, NOW)

    def card(minor: int, core: str, memory: str, ratio: str) -> dict[str, object]:
        resources = {
            "koordinator.sh/gpu-core": core,
            "koordinator.sh/gpu-memory": memory,
            "koordinator.sh/gpu-memory-ratio": ratio,
        }
        return {"id": f"GPU-{minor}", "minor": minor, "type": "gpu", "health": False, "resources": resources}

    assert status["nodeMetric"]["nodeUsage"]["devices"] == [card(0, "30", "500", "50"), card(1, "0", "0", "0")]
    assert status["podsMetric"][0]["podUsage"]["devices"] == [card(0, "30", "500", "50")]
    assert "devices" not in status["nodeMetric"]["systemUsage"]


def test_of_a_card_whose_memory_is_unknown_no_percentage_is_reported(tmp_path: Path) -> None:
    """Its processes are known all the same. 0 % would say that nobody uses it."""
    cards = [replace(CARDS[0], memory=None)]
    cache = RingMetricCache({group: Retention(1, 600) for group in (kinds.NODE, kinds.PODS, kinds.MEMORY)}, 1 << 20)
    found = collector(tmp_path, GPUProcess(7, CARDS[0], 30, 500)).collect([])
    at = round(NOW.timestamp() * 1000)
    cache.append(at, {kinds.NODE_CPU_USAGE.series(): 1.0, kinds.NODE_MEMORY_USAGE.series(): 1.0} | found.node)
    status = node_metric_status(cache, NodeMetricInput(CollectPolicy(durations=None), [], gpus=cards), NOW)
    (device,) = status["nodeMetric"]["nodeUsage"]["devices"]
    assert device["resources"] == {"koordinator.sh/gpu-core": "30", "koordinator.sh/gpu-memory": "500"}
