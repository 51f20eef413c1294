"""The controller ``nodeslo``: tells each node's agent what to enforce."""

from __future__ import annotations

import logging
from typing import Final

from koordinator.api.kinds import NODE_SLOS
from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLO, NodeSLOSpec
from koordinator.manager.controllers import ControllerContext
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

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._told: dict[str, tuple[str, ...]] = {}

    def spec(self, node: Node, stored: NodeSLO | None) -> NodeSLOSpec | None:
        configuration = self.source.current
        if not configuration.node_slo_available:
            return None
        spec, problems = node_slo.node_slo_spec(configuration, node, stored.spec if stored is not None else None)
        failed = {problem.part for problem in problems}
        for part in _PARTS:
            outcome = self.metrics.parsed.failed if part in failed else self.metrics.parsed.succeeded
            outcome(part)
        self._tell(node.metadata.name, tuple(problem.message for problem in problems))
        return spec

    def _tell(self, node: str, problems: tuple[str, ...]) -> None:
        """Once for each node, until it is others."""
        if problems and self._told.get(node) != problems:
            logger.warning("NodeSLO of node %s: %s", node, "; ".join(problems))
        if problems:
            self._told[node] = problems
        else:
            self._told.pop(node, None)

    def is_same(self, stored: NodeSLO, wanted: NodeSLOSpec) -> bool:
        return node_slo.same_node_slo_spec(stored.spec, wanted)
