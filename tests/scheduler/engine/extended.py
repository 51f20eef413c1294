"""An engine with the usual small profile and one plugin more, and what it decides."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from koordinator.api.node import Node
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def engine_with(kind: type[Plugin], nodes: Sequence[Node] = (), point: str = "") -> tuple[Engine, ClusterState, Any]:
    """The usual small profile and one plugin more, listed at ``point``."""
    state = make_state(nodes or [make_node("a"), make_node("b")])
    base = make_profile(state.view)
    plugin = kind(None, state.view)
    order = base.order
    if point == "score":
        order = replace(order, score=(*order.score, (kind.name, 1)))
    elif point:
        order = replace(order, **{point: (*getattr(order, point), kind.name)})
    profile = Profile(base.scheduler_name, {**base.plugins, kind.name: plugin}, order)
    return Engine(profile, state, FirstChoice()), state, plugin


def decide(engine: Engine, **changes: Any) -> Placement | Rejection:
    return engine.decide(describe(make_pod("p", **changes)), NOW)


def node_of(result: Placement | Rejection) -> str:
    assert isinstance(result, Placement)
    return result.node_name


def message_of(result: Placement | Rejection) -> str:
    assert isinstance(result, Rejection)
    return result.message


class Shared(Plugin):
    """Treats all pods alike."""

    def class_key(self, pod: PodInfo) -> Hashable:
        return None
