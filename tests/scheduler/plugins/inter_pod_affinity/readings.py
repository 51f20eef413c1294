"""What an evaluation says, by the names of nodes, and what it should say."""

from __future__ import annotations

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.evaluation import Evaluation
from tests.scheduler.plugins.inter_pod_affinity import reference
from tests.scheduler.plugins.inter_pod_affinity.fixtures import ClusterFixture

FilterResults = dict[str, list[tuple[str, bool]]]
"""Node -> (reason, unresolvable), empty where the pod can go."""


def found_results(fixture: ClusterFixture, evaluation: Evaluation) -> FilterResults:
    evaluation.refresh()
    columns = fixture.view.columns
    found: FilterResults = {name: [] for name, row in columns.row_of.items() if evaluation.feasible[row]}
    for failure in evaluation.failures():
        reasons = failure.plugin.reasons(evaluation.pod, failure.state, failure.code)
        for row in failure.rows.tolist():
            found[columns.names[row]] = [(reason.text, reason.unresolvable) for reason in reasons]
    return found


def found_scores(fixture: ClusterFixture, evaluation: Evaluation) -> dict[str, int]:
    evaluation.refresh()
    rows = fixture.view.columns.row_of
    return {name: sum(evaluation.scores_of((row,))[0]) for name, row in rows.items() if evaluation.feasible[row]}


def wanted_results(fixture: ClusterFixture, pod: Pod) -> FilterResults:
    return {name: reference.filter_result(pod, node, fixture.picture) for name, node in fixture.picture.nodes.items()}
