"""TenantNodes: a labelled node is for the pods of the namespace that the label names."""

from collections.abc import Hashable

import msgspec

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.scalar import ScalarFilterPlugin, ScalarNode, ScalarScorePlugin


class TenantNodesArgs(msgspec.Struct, rename="camel"):
    node_label: str = "example.com/tenant"


class TenantNodes(ScalarFilterPlugin, ScalarScorePlugin):
    name = "TenantNodes"
    args_type = TenantNodesArgs
    reads = score_reads = (Aspect.NODE,)

    def class_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.namespace

    def filter_node(self, pod: Pod, node: ScalarNode) -> str | None:
        tenant = node.labels.get(self.args.node_label)
        return "node(s) belonged to another tenant" if tenant not in (None, pod.metadata.namespace) else None

    def score_node(self, pod: Pod, node: ScalarNode) -> int:
        return 100 if self.args.node_label in node.labels else 0
