"""The vectorised plugin agrees with its plain version, after any events, for any pod."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.configuration.upstream_arguments import InterPodAffinityArgs
from tests.examples import examples
from tests.scheduler.plugins.inter_pod_affinity import reference
from tests.scheduler.plugins.inter_pod_affinity.fixtures import ClusterFixture, fixtures, pods
from tests.scheduler.plugins.inter_pod_affinity.readings import found_results, found_scores, wanted_results

SETTINGS = settings(max_examples=examples(120))


@SETTINGS
@given(fixture=fixtures(), data=st.data())
def test_filter(fixture: ClusterFixture, data: st.DataObject) -> None:
    pod = data.draw(pods("incoming"))
    assert found_results(fixture, fixture.evaluation(pod)) == wanted_results(fixture, pod)


ARGUMENTS = {
    "defaults": InterPodAffinityArgs(),
    "required terms do not count": InterPodAffinityArgs(hard_pod_affinity_weight=0),
    "required terms count much": InterPodAffinityArgs(hard_pod_affinity_weight=70),
    "preferences of others are ignored": InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True),
}


@pytest.mark.parametrize("args", ARGUMENTS.values(), ids=ARGUMENTS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_score(args: InterPodAffinityArgs, data: st.DataObject) -> None:
    fixture, pod = data.draw(fixtures(args)), data.draw(pods("incoming"))
    ignore = args.ignore_preferred_terms_of_existing_pods
    wanted = reference.scores(pod, fixture.picture, args.hard_pod_affinity_weight, ignore=ignore)
    assert found_scores(fixture, fixture.evaluation(pod)) == wanted


@SETTINGS
@given(fixture=fixtures(), data=st.data())
def test_single_rows(fixture: ClusterFixture, data: st.DataObject) -> None:
    evaluation = fixture.evaluation(data.draw(pods("incoming")))
    rows = sorted(fixture.view.columns.row_of.values())
    for entry in evaluation.plan.filters:
        codes = entry.plugin.filter(evaluation.pod, entry.state, np.array(rows, dtype=np.intp)).tolist()
        assert [entry.plugin.filter_one(evaluation.pod, entry.state, row) for row in rows] == codes
    for score in evaluation.plan.scores:
        values = score.plugin.score(evaluation.pod, score.state, np.array(rows, dtype=np.intp)).tolist()
        assert [score.plugin.score_one(evaluation.pod, score.state, row) for row in rows] == values
