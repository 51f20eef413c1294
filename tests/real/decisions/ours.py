"""The result and the scores of our engine about one pod, on the cluster as the API server has it at this moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from koordinator.api.kinds import NODE_METRICS, NODES, PODS
from koordinator.api.pod import Pod
from koordinator.kube.interface import Client
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import load_configuration
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN


@dataclass(frozen=True, slots=True)
class Decision:
    """``scores``: node -> plugin -> weighted score of all nodes that pass; ``failures``: (plugin, reason) -> nodes."""

    scores: dict[str, dict[str, int]]
    failures: dict[tuple[str, str], list[str]]
    result: Placement | Rejection


async def decide(client: Client, configuration: Path, pod: Pod) -> Decision:
    """What our scheduler would do with ``pod`` now."""
    view = ClusterView(NodeColumns())
    view.now = now = datetime.now(UTC)
    state = ClusterState(view)
    (profile,) = build_profiles(load_configuration(configuration), BUILT_IN, view)
    state.add_event_handlers(profile.event_handlers)
    for plugin in profile.parts:
        for kind in plugin.watches:
            for obj in (await client.list(kind)).items:
                state.set_object(kind, obj.metadata.key, obj)
    for node in (await client.list(NODES)).items:
        state.set_node(node)
    for metric in (await client.list(NODE_METRICS)).items:
        state.set_node_object(NODE_METRICS.name, metric.metadata.name, metric)
    for other in (await client.list(PODS)).items:
        if other.spec.node_name and other.metadata.uid != pod.metadata.uid:
            state.set_pod(make_pod_info(other), other.spec.node_name)
    info = make_pod_info(pod)
    result = Engine(profile, state, Random(0)).decide(info, now)
    evaluation = Evaluation(profile, view, info)
    evaluation.refresh()
    names = view.columns.names
    passed = [row for row in view.columns.row_of.values() if evaluation.feasible.size and evaluation.feasible[row]]
    scores = {
        names[row]: dict(zip(evaluation.score_names, evaluation.scores_of((row,))[0], strict=True)) for row in passed
    }
    return Decision(scores, _failures(result), result)


def _failures(result: Placement | Rejection) -> dict[tuple[str, str], list[str]]:
    """By plugin and reasons, with as many nodes as the rejection names."""
    if isinstance(result, Placement):
        return {}
    return {(each.plugin, ", ".join(each.reasons)): [*each.examples] for each in result.rejected}
