"""What a node offers while its co-location is taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest

from koordinator.api.annotations import ADAPTIVE_SLO
from koordinator.model.overcommit.abnormality import Finding, NodeHealth
from koordinator.model.overcommit.facts import MetricFacts, metric_facts
from koordinator.model.overcommit.plan import Plan, decide
from koordinator.model.overcommit.policies import CapacityPolicy, Policies
from koordinator.model.slo_adaptation import AdaptiveSLO
from koordinator.model.slo_configuration.configuration_keys import ADAPTIVE_SLO as KEY
from tests.model.overcommit.node_objects import BATCH_CPU, NOW, a_metric, a_node, a_snapshot

ADAPTIVE = AdaptiveSLO.of(
    msgspec.structs.replace(KEY.defaults, enable=True, steps=2, hold_seconds=300, cpu_reclaim_floor_percent=20)
)
ON = Policies(CapacityPolicy(enable=True, cpu_reclaim_threshold_percent=60), adaptive_slo=ADAPTIVE)
OFF = replace(ON, adaptive_slo=None)
SUFFERS = ("cpu-pressure of pod default/web is 40, above 10",)
FROZEN = (Finding("FrozenReadings", "all readings have been the same"),)


def reported(now: datetime, *, suffers: bool) -> MetricFacts:
    return msgspec.structs.replace(metric_facts(a_metric(updated=now)), suffering=SUFFERS if suffers else ())


def planned(
    state: str | None = None,
    *,
    suffers: bool = False,
    policies: Policies = ON,
    now: datetime = NOW,
    health: NodeHealth | None = None,
) -> Plan:
    node = a_node(annotations={} if state is None else {ADAPTIVE_SLO: state})
    snapshot = a_snapshot(node, (), a_metric(updated=now), health=health)
    return decide(msgspec.structs.replace(snapshot, metric=reported(now, suffers=suffers)), policies, now)


def batch_cpu(plan: Plan) -> int | None:
    amount = next(each for each in plan.amounts if each.resource == BATCH_CPU)
    return None if amount.is_reset else amount.value


def stored(level: int, seconds_ago: int) -> str:
    since = f"{NOW - timedelta(seconds=seconds_ago):%Y-%m-%dT%H:%M:%SZ}"
    text = f'"level":{level},"steps":2,"since":"{since}","calmFrom":"{since}"'
    return "{" + text + "}"


def test_a_node_whose_pods_suffer_lends_less() -> None:
    # 60, 40 and 20 of 100 CPUs, less 7 of the system.
    assert batch_cpu(planned()) == 53_000
    plan = planned(suffers=True)
    assert batch_cpu(plan) == 33_000
    assert plan.adaptation is not None
    assert (plan.adaptation.level, plan.adaptation.reason) == (1, SUFFERS[0])
    assert batch_cpu(planned(stored(1, 300), suffers=True)) == 13_000


def test_the_level_is_in_the_annotation_and_the_next_look_in_the_plan() -> None:
    plan = planned(suffers=True)
    assert plan.annotations[ADAPTIVE_SLO] is not None
    assert plan.recheck_at == NOW + timedelta(seconds=300)


def test_a_node_that_was_never_adapted_has_no_annotation() -> None:
    assert ADAPTIVE_SLO not in planned().annotations


@pytest.mark.parametrize("policies", [OFF, replace(ON, capacity=CapacityPolicy(), adaptive_slo=None)])
def test_where_adaptation_is_off_the_annotation_goes(policies: Policies) -> None:
    plan = planned(stored(1, 60), suffers=True, policies=policies)
    assert plan.annotations[ADAPTIVE_SLO] is None
    assert plan.adaptation is None


@pytest.mark.parametrize(("level", "ago", "left"), [(0, 600, 33_000), (1, 60, 33_000), (1, 300, None), (2, 60, None)])
def test_an_abnormal_node_loses_all_only_with_the_last_step(level: int, ago: int, left: int | None) -> None:
    frozen = NodeHealth(first_seen=NOW, changed_at=NOW, findings=FROZEN)
    assert batch_cpu(planned(stored(level, ago), health=frozen)) == left
    assert batch_cpu(planned(stored(level, ago), health=frozen, policies=OFF)) is None


def test_a_report_that_is_too_old_takes_all_at_once_and_is_no_calm() -> None:
    now = NOW + timedelta(hours=1)
    snapshot = a_snapshot(a_node(annotations={ADAPTIVE_SLO: stored(1, 60)}), (), a_metric())
    quiet = replace(ON, abnormality=replace(ON.abnormality, enable=False))
    plan = decide(snapshot, quiet, now)
    assert batch_cpu(plan) is None
    assert plan.adaptation is not None
    assert plan.adaptation.level == 1
