"""Cache and memory bandwidth on a simulated kernel, since no kernel of the tests has resctrl: what koordlet decides for
a class and for a single pod bounds what they get of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.cluster.nodes.simulated_kernel import PodDemand, SimulatedKernel
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks import pod_resctrl
from koordinator.koordlet.enforce.strategies import class_resctrl
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.resctrl import CacheAllocation, read_allocation, read_monitors
from tests.koordlet.enforce.hooks.hook_fixtures import node_pod, rules, running
from tests.koordlet.enforce.strategies.qos_fixtures import policy, snapshot

CPUS, GIB = 4, 1 << 30
CACHE = 32 << 20
SECONDS = 10.0


class Node:
    """A node on which two pods of different classes are busy with half of its CPUs each."""

    def __init__(self, root: Path) -> None:
        self.kernel = SimulatedKernel(root, CPUS, 16 * GIB, 0.0)
        self.executor = Executor(
            SimulatedFiles(), KernelFileCodec(self.kernel.host, self.kernel.layout, 4096), ManualClock()
        )
        self.pods = [self._placed("web", "LS"), self._placed("job", "BE")]
        self.now = 0.0

    def _placed(self, name: str, qos: str) -> NodePod:
        (pod,) = node_pods([node_pod(name, qos).pod], self.kernel.layout)
        return pod

    @property
    def caches(self) -> CacheAllocation:
        found = read_allocation(self.kernel.host)
        assert found is not None
        return found

    def run(self) -> None:
        self.now += SECONDS
        self.kernel.advance(self.now, 0.0, GIB, [PodDemand(pod, CPUS / 2, GIB) for pod in self.pods])

    def enforce(self, settings: Sequence[DesiredSetting]) -> None:
        self.executor.submit(settings[0].owner, settings)
        self.executor.apply()
        self.run()

    def gets(self, group: str) -> tuple[float, float]:
        """The share of the cache that a group has now, and the cores' worth of bandwidth that it takes."""
        (before,) = read_monitors(self.kernel.host, group)
        self.run()
        (monitor,) = read_monitors(self.kernel.host, group)
        assert monitor.occupancy is not None
        assert monitor.total_bandwidth is not None
        assert before.total_bandwidth is not None
        return monitor.occupancy / CACHE, (monitor.total_bandwidth - before.total_bandwidth) / SECONDS / GIB


PART: dict[str, Any] = {"llc": {"schemata": {"range": [0, 20]}}, "mb": {"schemata": {"percent": 30}}}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.run()
    return node


def test_a_class_gets_no_more_than_its_part(node: Node) -> None:
    assert node.gets("BE") == (0.5, 2.0)
    limited = {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 10}
    given = snapshot(policy=policy(resourceQOSStrategy={"beClass": {"resctrlQOS": limited}}))
    settings = class_resctrl.decide(given, node.caches, {}, is_enabled=True).settings
    assert settings is not None
    node.enforce(settings)
    cache, bandwidth = node.gets("BE")
    assert cache == pytest.approx(0.3, abs=0.1)
    assert bandwidth == pytest.approx(0.1 * CPUS)


def test_a_pod_with_a_part_of_its_own_gets_no_more_than_that(node: Node) -> None:
    assert node.gets("LS") == (0.5, 2.0)
    annotations = {"node.koordinator.sh/resctrl": json.dumps(PART)}
    node.enforce(pod_resctrl.schemata(running("web", annotations=annotations), rules(caches=node.caches)))
    cache, bandwidth = node.gets("koordlet-web")
    assert cache == pytest.approx(0.2, abs=0.1)
    assert bandwidth == pytest.approx(0.3 * CPUS)
    assert node.gets("LS") == (0.0, 0.0)
    SimulatedFiles().remove_folder(f"{node.kernel.host.sys_fs}/resctrl/koordlet-web")
    node.run()
    assert node.gets("LS") == (0.5, 2.0)


@pytest.mark.parametrize("content", ["", "L3:0=f\n", "L3:0=f\nMB:0="], ids=["empty", "partial", "cut off"])
def test_a_class_whose_schemata_are_being_written_gets_all(content: str, node: Node) -> None:
    Path(node.kernel.host.sys_fs, "resctrl/BE/schemata").write_text(content)
    assert node.gets("BE") == (0.5, 2.0)
