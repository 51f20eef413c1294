"""The controller ``nodeslo``: tells each node's agent what to enforce."""

from __future__ import annotations

import logging
from typing import Final

from koordinator.api.kinds import NODE_SLOS
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLO, NodeSLOSpec
from koordinator.manager.node_policy.controller import NodePolicyController
from koordinator.model.slo_configuration import node_slo

logger = logging.getLogger(__name__)

_PARTS: Final = (
    node_slo.RESOURCE_THRESHOLD_PART,
    node_slo.RESOURCE_QOS_PART,
    node_slo.CPU_BURST_PART,
    node_slo.SYSTEM_PART,
    node_slo.HOST_APPLICATION_PART,
    node_slo.EXTENSION_PART,
)


class NodeSLOController(NodePolicyController[NodeSLO]):
    """One merged policy for each node."""

    name = "nodeslo"
    kind = NODE_SLOS

    def spec(self, node: Node, stored: NodeSLO | None) -> NodeSLOSpec | None:
        configuration = self.source.current
        if not configuration.node_slo_available:
            return None
        spec, problems = node_slo.node_slo_spec(configuration, node, stored.spec if stored is not None else None)
        failed = {problem.part for problem in problems}
        for part in _PARTS:
            outcome = self.metrics.parsed.failed if part in failed else self.metrics.parsed.succeeded
            outcome(part)
        for problem in problems:
            logger.warning("NodeSLO of node %s: %s", node.metadata.name, problem.message)
        return spec

    def is_same(self, stored: NodeSLO, wanted: NodeSLOSpec) -> bool:
        return node_slo.same_node_slo_spec(stored.spec, wanted)
