"""What an evaluation says, by the names of nodes, and what it should say."""

from __future__ import annotations

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.evaluation import Evaluation
from tests.scheduler.plugins.inter_pod_affinity import reference
from tests.scheduler.plugins.inter_pod_affinity.worlds import World

FilterResults = dict[str, list[tuple[str, bool]]]
"""Node -> (reason, unresolvable), empty where the pod can go."""


def found_results(world: World, evaluation: Evaluation) -> FilterResults:
    evaluation.refresh()
    columns = world.view.columns
    found: FilterResults = {name: [] for name, row in columns.row_of.items() if evaluation.feasible[row]}
    for failure in evaluation.failures():
        reasons = failure.plugin.reasons(evaluation.pod, failure.state, failure.code)
        for row in failure.rows.tolist():
            found[columns.names[row]] = [(reason.text, reason.unresolvable) for reason in reasons]
    return found


def found_scores(world: World, evaluation: Evaluation) -> dict[str, int]:
    evaluation.refresh()
    rows = world.view.columns.row_of
    return {name: sum(evaluation.scores_of(row)) for name, row in rows.items() if evaluation.feasible[row]}


def wanted_results(world: World, pod: Pod) -> FilterResults:
    return {name: reference.filter_result(pod, node, world.picture) for name, node in world.picture.nodes.items()}
