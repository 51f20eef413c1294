"""The vectorised plugin agrees with plain per-node code: result, reason and integer score, for any cluster and pod."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.scheduler.plugins.pod_topology_spread import reference
from tests.scheduler.plugins.pod_topology_spread.dice import Dice


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32))
def test_results_and_scores(seed: int) -> None:
    dice = Dice(seed)
    fixture, pod = dice.fixture(), dice.incoming_pod()
    defaults = reference.SYSTEM if fixture.by_system else fixture.args.default_constraints
    hard, soft = (
        reference.constraints_of(pod, action, defaults, fixture.objects)
        for action in ("DoNotSchedule", "ScheduleAnyway")
    )

    result = fixture.evaluate_afresh(pod)

    expected = reference.filter_results(pod, hard, fixture.machines)
    assert result.reasons == expected
    assert result.unresolvable == {name for name, reasons in expected.items() if reasons == [reference.MISSING]}
    all_keys = bool(pod.spec.topology_spread_constraints) or not fixture.by_system
    feasible = [name for name, reasons in expected.items() if not reasons]
    scores = reference.scores(pod, soft, fixture.machines, feasible, needs_all_keys=all_keys)
    assert result.scores == (scores if soft else None)
    fewer = dice.some(list(fixture.machines))
    scores = reference.scores(pod, soft, fixture.machines, fewer, needs_all_keys=all_keys)
    assert fixture.scores_if_feasible(pod, fewer) == (scores if soft else None)
