"""VectorisedTenantNodes: the same as TenantNodes, decided for all nodes at once."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from tenant_nodes import TenantNodesArgs

from koordinator.api.node import Node
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, Reason, ScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

NOBODY = 0


class VectorisedTenantNodes(FilterPlugin, ScorePlugin, EventHandler):
    name = "VectorisedTenantNodes"
    args_type = TenantNodesArgs
    reads = score_reads = (Aspect.NODE,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._numbers: dict[str, int] = {}
        self._tenants: Ints = np.zeros(0, dtype=np.int64)

    def on_node(self, row: int, node: Node) -> None:
        if row >= self._tenants.shape[0]:
            self._tenants = np.concatenate([self._tenants, np.zeros(row + 64, dtype=np.int64)])
        tenant = node.metadata.labels.get(self.args.node_label)
        self._tenants[row] = NOBODY if tenant is None else self._numbers.setdefault(tenant, len(self._numbers) + 1)

    def class_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.namespace

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        tenants, own = self._tenants[rows], self._numbers.get(pod.pod.metadata.namespace, NOBODY)
        codes: Ints = ((tenants != NOBODY) & (tenants != own)).astype(np.int64)
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) belonged to another tenant", unresolvable=True),)

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.where(self._tenants[rows] != NOBODY, 100, 0)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.NODE_LABEL})
