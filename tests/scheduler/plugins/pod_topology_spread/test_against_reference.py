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
    world, pod = dice.world(), dice.incoming_pod()
    defaults = reference.SYSTEM if world.by_system else world.args.default_constraints
    hard, soft = (
        reference.constraints_of(pod, action, defaults, world.objects) for action in ("DoNotSchedule", "ScheduleAnyway")
    )

    result = world.evaluate_afresh(pod)

    expected = reference.filter_results(pod, hard, world.machines)
    assert result.reasons == expected
    assert result.unresolvable == {name for name, reasons in expected.items() if reasons == [reference.MISSING]}
    all_keys = bool(pod.spec.topology_spread_constraints) or not world.by_system
    feasible = [name for name, reasons in expected.items() if not reasons]
    scores = reference.scores(pod, soft, world.machines, feasible, needs_all_keys=all_keys)
    assert result.scores == (scores if soft else None)
    fewer = dice.some(list(world.machines))
    scores = reference.scores(pod, soft, world.machines, fewer, needs_all_keys=all_keys)
    assert world.scores_if_feasible(pod, fewer) == (scores if soft else None)
