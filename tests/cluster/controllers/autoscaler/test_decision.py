"""What an autoscaler decides, and how it says why."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.quantity import Quantity
from koordinator.cluster.controllers.autoscaler.decision import Decision, Situation, decide, without_scale
from koordinator.cluster.controllers.autoscaler.scaling_rules import History, Moment
from koordinator.cluster.controllers.autoscaler.types import (
    AutoscalerBehavior,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    OtherMetricSource,
    ResourceMetricSource,
    ScalingRules,
)
from tests.cluster.controllers.autoscaler.autoscaler_objects import autoscaler, running, scale, uses
from tests.cluster.controllers.objects import NOW, ago

_PODS = [running("a"), running("b")]
_OLD = History(recommended=(Moment(ago(400), 2),))
_OTHER = MetricSpec(
    type="Pods",
    pods=OtherMetricSource(metric=MetricIdentifier(name="rps"), target=MetricTarget(average_value=Quantity(10**9))),
)


def _decide(cpu: int, of: Any = None, replicas: int = 2, history: History = _OLD, **more: Any) -> Decision:
    given = {"pods": _PODS, "metrics": [uses(each.metadata.name, cpu) for each in _PODS], **more}
    return decide(Situation(of or autoscaler(), scale(replicas), **given), history, NOW)


def _memory(target: int) -> MetricSpec:
    """So many bytes for each pod."""
    wanted = MetricTarget(average_value=Quantity.from_value(target))
    return MetricSpec(type="Resource", resource=ResourceMetricSource(name="memory", target=wanted))


def _conditions(decision: Decision) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in decision.status.conditions}


def test_more_usage_than_the_target_adds_replicas() -> None:
    found = _decide(100)
    assert (found.replicas, found.status.desired_replicas, found.status.current_replicas) == (4, 4, 2)
    assert found.status.current_metrics == [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": 100, "averageValue": "100m"}},
        }
    ]
    assert _conditions(found) == {
        "AbleToScale": ("True", "ReadyForNewScale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
    }
    done = found.rescaled(autoscaler(), 2, NOW)
    assert _conditions(done)["AbleToScale"] == ("True", "SucceededRescale")
    assert done.status.last_scale_time == NOW
    assert [(note.type, note.reason, note.message) for note in done.notes] == [
        (
            "Normal",
            "SuccessfulRescale",
            "New size: 4; reason: cpu resource utilization (percentage of request) above target",
        )
    ]
    refused = found.not_rescaled(autoscaler(), "no", NOW)
    assert _conditions(refused)["AbleToScale"] == ("False", "FailedUpdateScale")
    assert (refused.status.desired_replicas, refused.notes[0].reason) == (0, "FailedRescale")


def test_less_usage_takes_replicas_away_once_no_recent_recommendation_was_higher() -> None:
    assert (_decide(10).replicas, _decide(10).why) == (1, "All metrics below target")
    early = _decide(10, history=History())
    assert (early.replicas, _conditions(early)["AbleToScale"]) == (None, ("True", "ScaleDownStabilized"))


def test_the_metric_that_asks_for_most_counts() -> None:
    found = _decide(100, autoscaler(*autoscaler().spec.metrics, _memory(90)))
    assert (found.replicas, found.why) == (4, "cpu resource utilization (percentage of request) above target")
    memory = _decide(100, autoscaler(*autoscaler(percent=100).spec.metrics, _memory(50)))
    assert memory.why == "memory resource above target"


def test_a_metric_that_is_not_known_forbids_to_shrink_and_not_to_grow() -> None:
    of = autoscaler(*autoscaler().spec.metrics, _OTHER)
    assert _decide(100, of).replicas == 4
    found = _decide(10, of)
    assert found.replicas is None
    assert _conditions(found)["ScalingActive"] == ("False", "FailedGetPodsMetric")
    assert [note.reason for note in found.notes] == ["FailedGetPodsMetric", "FailedComputeMetricsReplicas"]
    assert found.status.current_metrics is not None
    assert found.status.current_metrics[1] == {"type": ""}


@pytest.mark.parametrize(
    ("replicas", "expected", "why"),
    [
        (11, 10, "Current number of replicas above Spec.MaxReplicas"),
        (1, 2, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_a_number_beyond_the_bounds_is_corrected_without_metrics(replicas: int, expected: int, why: str) -> None:
    found = _decide(0, autoscaler(min_replicas=2), replicas, metrics="none")
    assert (found.replicas, found.why) == (expected, why)


def test_a_target_with_no_replicas_is_left_alone() -> None:
    found = _decide(100, replicas=0)
    assert (found.replicas, _conditions(found)["ScalingActive"]) == (None, ("False", "ScalingDisabled"))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"rivals": ["default/other"]}, "AmbiguousSelector"),
        ({"selector_error": "odd"}, "InvalidSelector"),
        ({"metrics": "gone"}, "FailedGetResourceMetric"),
        ({"metrics": []}, "FailedGetResourceMetric"),
        ({"pods": []}, "FailedGetResourceMetric"),
    ],
)
def test_what_keeps_it_from_scaling_is_a_condition_and_an_event(more: dict[str, Any], reason: str) -> None:
    found = _decide(100, **more)
    assert found.replicas is None
    assert _conditions(found)["ScalingActive"] == ("False", reason)
    assert [note.reason for note in found.notes] == [reason, "FailedComputeMetricsReplicas"]


def test_a_target_without_a_scale_is_named_and_the_rest_of_the_status_stays() -> None:
    before = autoscaler()
    found = without_scale(before, "nothing there", History(), NOW)
    assert _conditions(found) == {"AbleToScale": ("False", "FailedGetScale")}
    assert found.status.conditions[0].message.endswith("current scale: nothing there")


def test_a_tolerance_of_its_own_decides_what_is_a_change() -> None:
    rules = ScalingRules(tolerance=Quantity.from_milli(500), policies=[])
    behavior = AutoscalerBehavior(scale_up=rules, scale_down=rules)
    assert _decide(70, autoscaler(behavior=behavior)).replicas is None
    assert _decide(70).replicas == 3


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = _decide(100)
    later = autoscaler()
    later = type(later)(metadata=later.metadata, spec=later.spec, status=first.status)
    again = decide(Situation(later, scale(2), _PODS, "gone"), first.history, ago(-60))
    times = {each.type: each.last_transition_time for each in again.status.conditions}
    assert (times["AbleToScale"], times["ScalingActive"]) == (NOW, ago(-60))
