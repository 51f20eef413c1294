"""Keeps what is known of the node's topology current, for the agent itself and in its NodeResourceTopology."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from koordinator.api.annotations import KOORDLET_CONFIGURATION
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from koordinator.base.loops import Loop
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce.strategies.snapshot import STATIC
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.report.node_object import NodeObject
from koordinator.koordlet.report.node_topology.description import (
    NodeTopology,
    TopologyFacts,
    describe,
    new_topology,
    topology_patch,
)
from koordinator.koordlet.report.node_topology.kubelet_cpus import (
    CPUManagerStateError,
    KubeletCPUs,
    kubelet_cpus,
    parse_cpu_manager_state,
)
from koordinator.node.cpu_topology import CPUBasicInfo, CPUTopology, read_basic_info
from koordinator.node.errors import MissingFileError
from koordinator.node.host import read_file

logger = logging.getLogger(__name__)


_EARLY_LOOKS: Final = 10
_LOOK_AGAIN: Final = 0.2
"""Seconds."""


class TopologyReporter:
    """What cannot be determined is left as it was reported before. Without the gate NodeTopologyReport the topology is
    kept for the agent only; where the kubelet's configuration is not queried, what kubelet does with CPUs counts for
    nothing."""

    def __init__(
        self, context: AgentContext, info: NodeInfo, configuration: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        """``configuration`` says what of the agent's ConfigMap is in force; nothing without one."""
        self._options = options = context.options
        self._writes = options.features.enabled(features.NODE_TOPOLOGY_REPORT)
        self._clock = context.given.clock
        self._object = NodeObject(context.given.client, NODE_RESOURCE_TOPOLOGIES)
        self._states = context.states
        self._info = info
        self._configuration = configuration
        self._basic: tuple[CPUTopology, CPUBasicInfo] | None = None
        self._said = SaidOnce(logger)

    @property
    def loop(self) -> Loop:
        return Loop("node topology", self._report_early, self._options.topology_interval, 30.0)

    async def _report_early(self) -> None:
        # It needs what other loops read in their first rounds, which begin at the same time as its own. Until then,
        # containers start on the CPUs that the container runtime gives them, not on those that their pods share.
        await self.report()
        for _ in range(_EARLY_LOOKS):
            if self._states.topology is not None:
                break
            await self._clock.sleep(_LOOK_AGAIN)
            await self.report()

    async def report(self) -> None:
        """One round; an error of the node, of kubelet or of the API server ends it."""
        present, node = self._states.node_resource_topology, self._states.node
        is_new = self._writes and present is None
        # Before the first pod nothing has CPUs of its own. An object that is there knows of pods that this agent does
        # not know yet.
        if node is None or not (self._states.has_synced_pods or is_new):
            return
        topology = self.look()
        if topology is None:
            return
        said = self._configuration()
        if said or (present is not None and KOORDLET_CONFIGURATION in present.metadata.annotations):
            topology = replace(topology, annotations={**topology.annotations, KOORDLET_CONFIGURATION: said})
        if is_new:
            await self._object.create(new_topology(node, topology))
        elif present is not None and self._writes:
            await self._object.patch(present.metadata, topology_patch(present, topology))

    def look(self) -> NodeTopology | None:
        """What the topology is now, of which the agent is told once its pods are known; None while something is not
        known that it follows from. Nothing is reported."""
        cpus, memory, node = self._info.topology, self._info.numa_memory, self._states.node
        if cpus is None or memory is None or node is None:
            return None
        kubelet = self._kubelet_cpus(cpus)
        if kubelet is None:
            return None
        facts = TopologyFacts(
            cpus=cpus,
            basic_info=self._basic_info(cpus),
            memory=memory,
            node=node,
            pods=self._states.pods,
            kubelet=kubelet,
            of_kubelet=self._allocated_by_kubelet() if kubelet.policy == STATIC else {},
        )
        topology = describe(facts)
        if self._states.has_synced_pods:
            self._states.set_topology(topology)
        return topology

    def _kubelet_cpus(self, topology: CPUTopology) -> KubeletCPUs | None:
        """None before the kubelet has returned its configuration."""
        if not self._options.kubelet.query_configuration:
            return KubeletCPUs()
        configuration = self._states.kubelet_configuration
        if configuration is None:
            return None
        known = kubelet_cpus(configuration.document, topology)
        with self._said.round():
            if known.problem:
                self._said.say(known.problem)
        return known

    def _allocated_by_kubelet(self) -> Mapping[str, frozenset[int]]:
        path = f"{self._options.host.var_lib_kubelet}/cpu_manager_state"
        try:
            return parse_cpu_manager_state(read_file(path))
        except MissingFileError as error:
            # Kubelet makes it before it starts a pod: its folder is another one.
            raise CPUManagerStateError(
                f"kubelet has its static CPU manager, but {path} is not there, so that it is not known which CPUs it "
                "has given to pods: --var-lib-kubelet-dir has to be what kubelet's --root-dir is"
            ) from error

    def _basic_info(self, topology: CPUTopology) -> CPUBasicInfo:
        """Read when the topology was read anew: /proc/cpuinfo of a large machine is long."""
        if self._basic is None or self._basic[0] is not topology:
            self._basic = topology, read_basic_info(self._options.host, topology)
        return self._basic[1]
