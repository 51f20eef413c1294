"""A small profile with plugins more, each listed at every point that it implements, as ``multiPoint`` lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.third_party import implemented_points
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import FirstChoice, describe, make_profile, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_FIELDS = {
    "preEnqueue": "pre_enqueue",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
}


def profile_with(view: ClusterView, *kinds: type[Plugin], name: str = "koord-scheduler") -> Profile:
    """The usual fakes and these."""
    base = make_profile(view, name=name)
    order = base.order
    for kind in kinds:
        order = _listed(order, kind)
    return Profile(name, {**base.plugins, **{kind.name: kind(None, view) for kind in kinds}}, order)


def _listed(order: PluginOrder, kind: type[Plugin]) -> PluginOrder:
    points = [field for point, field in _FIELDS.items() if point in implemented_points(kind)]
    return replace(order, **{field: (*getattr(order, field), kind.name) for field in points})


class Cluster:
    """An engine of such a profile on a cluster in memory."""

    def __init__(self, nodes: Sequence[Node], *kinds: type[Plugin], state: ClusterState | None = None) -> None:
        self.state = state or make_state()
        self.view = self.state.view
        self.profile = profile_with(self.view, *kinds)
        self.state.add_event_handlers(self.profile.event_handlers)
        for node in nodes:
            self.state.set_node(node)
        self.engine = Engine(self.profile, self.state, FirstChoice())

    def bound(self, pod: Pod, node_name: str) -> PodInfo:
        """The API has the pod on the node."""
        info = describe(pod)
        self.state.set_pod(info, node_name)
        return info

    def row(self, node_name: str) -> int:
        return self.view.columns.row_of[node_name]
