"""What is written of a recommendation, and when."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.recommendation import DETAILS, Recommendation
from koordinator.manager.recommender.options import EstimateOptions, ModelOptions
from koordinator.manager.recommender.status import Writes, decide_writes
from koordinator.manager.recommender.targets import INVALID_TARGET, NO_PODS_MATCHED, Problem
from koordinator.manager.recommender.tracked import Tracked
from tests.manager.recommender.pods import DAY, MINUTE, START, pod, reading, tracked

OPTIONS = EstimateOptions()
MODEL = ModelOptions()


def fed(policy: str | None = None, minutes: int = 10, cpu: str = "1") -> Tracked:
    made = tracked(pod(), policy=policy)
    for minute in range(minutes):
        made.feed(made.pods[0], reading(START + minute * MINUTE, {"main": {"cpu": cpu, "memory": "1Gi"}}), MODEL)
    return made


def decide(of: Tracked, now: datetime = START + DAY) -> Writes:
    return decide_writes(of, OPTIONS, now)


def status(writes: Writes) -> dict[str, Any]:
    assert writes.status is not None
    written: dict[str, Any] = writes.status["status"]
    return written


def conditions(writes: Writes) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status(writes).get("conditions", ())}


def apply(of: Tracked, writes: Writes) -> None:
    """The object as the API server has it after the patches."""
    document = to_document(of.recommendation)
    document["status"] = document.get("status", {}) | status(writes)
    of.update(convert(document, Recommendation))


def test_the_first_recommendation() -> None:
    writes = decide(fed())
    assert status(writes)["podStatus"] == {
        "containerStatuses": [{"containerName": "main", "resources": {"cpu": "1174m", "memory": "1182Mi"}}]
    }
    assert conditions(writes) == {
        "ConfigUnsupported": ("False", "ConfigSupported"),
        "NoObjectsMatched": ("False", "PodsMatched"),
        "LowConfidence": ("True", "InsufficientHistory"),
    }


def test_the_details_are_an_annotation() -> None:
    writes = decide(fed(policy='{"maxAllowed":{"cpu":"1"}}'))
    assert writes.metadata is not None
    details = json.loads(writes.metadata["metadata"]["annotations"][DETAILS])["main"]
    assert details["uncappedTarget"]["cpu"] == "1174m"
    assert details["samples"] == 10
    assert (details["lowerBound"]["cpu"], details["upperBound"]["cpu"]) == ("873m", "1")


def test_with_a_day_of_samples_the_confidence_is_not_low() -> None:
    assert conditions(decide(fed(minutes=1441)))["LowConfidence"] == ("False", "EnoughHistory")


def test_nothing_is_written_again_while_nothing_changes() -> None:
    made = fed()
    apply(made, decide(made))
    assert decide(made, START + DAY + MINUTE) == Writes()


def test_it_is_written_again_after_ten_minutes() -> None:
    made = fed()
    apply(made, decide(made))
    assert status(decide(made, START + DAY + 10 * MINUTE)).keys() == {"updateTime", "podStatus"}


def test_it_is_written_again_when_its_time_is_one_of_a_clock_that_was_ahead() -> None:
    made = fed()
    apply(made, decide(made, START + 30 * DAY))
    assert status(decide(made, START + DAY)).keys() == {"updateTime", "podStatus"}


def test_a_target_that_moves_is_written_at_once() -> None:
    made = fed()
    apply(made, decide(made))
    made.feed(made.pods[0], reading(START + DAY, {"main": {"cpu": "3", "memory": "1Gi"}}), MODEL)
    made.feed(made.pods[0], reading(START + DAY + MINUTE, {"main": {"cpu": "3", "memory": "1Gi"}}), MODEL)
    assert "podStatus" in status(decide(made, START + DAY + MINUTE))


def test_without_pods_the_last_recommendation_stays() -> None:
    made = fed()
    apply(made, decide(made))
    made.pods, made.problem = (), Problem(NO_PODS_MATCHED, "Deployment default/web does not exist")
    writes = decide(made, START + 2 * DAY)
    assert conditions(writes)["NoObjectsMatched"] == ("True", NO_PODS_MATCHED)
    assert status(writes).keys() == {"conditions"}


def test_a_target_that_cannot_be_used() -> None:
    made = tracked()
    made.problem = Problem(INVALID_TARGET, "spec.target.type: 'x'")
    assert conditions(decide(made)) == {"ConfigUnsupported": ("True", INVALID_TARGET)}


def test_a_policy_that_cannot_be_used_is_reported_and_the_flags_apply() -> None:
    writes = decide(fed(policy='{"marginFraction":-1}'))
    assert conditions(writes)["ConfigUnsupported"] == ("True", "InvalidPolicy")
    assert status(writes)["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "1174m"


def test_a_container_that_is_off_has_no_recommendation() -> None:
    assert "podStatus" not in status(decide(fed(policy='{"containers":{"main":{"mode":"Off"}}}')))


@pytest.mark.parametrize("is_same", [True, False])
def test_the_transition_time_changes_with_the_status_alone(is_same: bool) -> None:
    made = fed()
    apply(made, decide(made))
    if not is_same:
        made.pods = ()
    made.policy_error = "something else"
    later = decide(made, START + 2 * DAY)
    (found,) = [each for each in status(later)["conditions"] if each["type"] == "NoObjectsMatched"]
    assert (found["lastTransitionTime"] == "2026-01-02T00:00:00Z") is is_same


def test_conditions_of_other_writers_stay() -> None:
    made = fed()
    document = to_document(made.recommendation)
    theirs = {"type": "ConfigDeprecated", "status": "True", "reason": "Old", "message": ""}
    document["status"] = {"conditions": [theirs | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    made.update(convert(document, Recommendation))
    assert conditions(decide(made))["ConfigDeprecated"] == ("True", "Old")


def test_history_that_is_being_read_is_a_condition() -> None:
    made = fed()
    made.is_fetching_history = True
    writes = decide(made)
    assert conditions(writes)["FetchingHistory"] == ("True", "QueryRunning")
    apply(made, writes)
    made.is_fetching_history = False
    assert conditions(decide(made))["FetchingHistory"] == ("False", "Fetched")
