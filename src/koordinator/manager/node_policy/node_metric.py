"""The controller ``nodemetric``: tells each node's agent how to measure."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric, NodeMetricSpec
from koordinator.manager.node_policy.controller import NodePolicyController
from koordinator.model.slo_configuration.colocation import metric_collect_policy, node_colocation_strategy

_POLICY_PART: Final = "getNodeMetricCollectPolicy"


class NodeMetricController(NodePolicyController[NodeMetric]):
    """Every node has a NodeMetric, also where colocation is off."""

    name = "nodemetric"
    kind = NODE_METRICS

    def spec(self, node: Node, stored: NodeMetric | None) -> NodeMetricSpec | None:
        colocation = self.source.current.colocation
        if not colocation.available or (stored is not None and colocation.in_error):
            return None
        strategy, problems = node_colocation_strategy(colocation.strategies, node.metadata)
        outcome = self.metrics.parsed.failed if problems else self.metrics.parsed.succeeded
        outcome(_POLICY_PART)
        return NodeMetricSpec(metric_collect_policy=metric_collect_policy(strategy))

    def is_same(self, stored: NodeMetric, wanted: NodeMetricSpec) -> bool:
        return stored.spec == wanted
