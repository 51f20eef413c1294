"""When a Job should end, and which pods it gets next."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.batch import (
    JobStatus,
    OnExitCodes,
    OnPodCondition,
    PodFailurePolicy,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
)
from koordinator.api.pod import ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition
from koordinator.cluster.controllers.job.assessment import assess
from koordinator.cluster.controllers.job.backoff import Backoff
from koordinator.cluster.controllers.job.failure_policy import verdict
from koordinator.cluster.controllers.job.new_pod import new_pod
from koordinator.cluster.controllers.job.pod_plan import PodPlan, plan_pods
from koordinator.cluster.controllers.job.pods import INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT
from koordinator.cluster.controllers.job.tracking import PodWrites, track
from tests.cluster.controllers.job.job_in_memory import START, job_with, pod_with


def plan(pods: list[Pod], backoff: Backoff | None = None, **spec: Any) -> PodPlan:
    return plan_pods(assess(job_with(**spec), pods, START), backoff or Backoff(), START)


def reason(pods: list[Pod], **spec: Any) -> str | None:
    target = assess(job_with(**spec), pods, START).target
    return target.reason if target is not None else None


def failed_with(code: int, **metadata: Any) -> Pod:
    pod = pod_with("failed", "Failed", **metadata)
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=code))
    return replace(pod, status=replace(pod.status, container_statuses=(ContainerStatus(name="main", state=ended),)))


def policy(action: str, operator: str = "In", values: tuple[int, ...] = (42,)) -> PodFailurePolicy:
    rule = PodFailurePolicyRule(action=action, on_exit_codes=OnExitCodes(operator=operator, values=values))
    return PodFailurePolicy(rules=(rule,))


def test_a_work_queue_starts_nothing_once_a_pod_has_succeeded() -> None:
    pods = [pod_with("one", "Succeeded"), pod_with("two", "Running")]
    assert plan(pods, parallelism=3, completions=None) == PodPlan()


def test_no_more_pods_than_completions_are_left() -> None:
    pods = [pod_with("one", "Succeeded"), pod_with("two", "Running")]
    assert plan(pods, parallelism=5, completions=3).create == (None,)


def test_pods_beyond_the_parallelism_go_and_the_pending_ones_first() -> None:
    pods = [pod_with("runs", "Running"), pod_with("waits", "Pending")]
    found = plan(pods, parallelism=1, completions=5)
    assert ([pod.metadata.uid for pod in found.delete], found.counts) == (["waits"], False)


def test_of_two_pods_with_one_index_the_one_that_runs_stays() -> None:
    pods = [pod_with("runs", "Running", index=0), pod_with("waits", "Pending", index=0)]
    found = plan(pods, parallelism=5, completions=5, completion_mode="Indexed")
    assert [pod.metadata.uid for pod in found.delete] == ["waits"]


def test_missing_indexes_are_created_from_the_first() -> None:
    pods = [pod_with("one", "Running", index=1), pod_with("three", "Succeeded", index=3)]
    assert plan(pods, parallelism=3, completions=6, completion_mode="Indexed").create == [0, 2]


def test_a_pause_after_failures() -> None:
    backoff = Backoff(3, START - timedelta(seconds=15))
    assert plan([], backoff) == PodPlan(retry_after=25.0)


def test_with_the_replacement_policy_failed_a_pod_is_replaced_once_it_has_ended() -> None:
    leaving = pod_with("leaving", "Running", deletion_timestamp=START)
    assert plan([leaving], pod_replacement_policy="Failed") == PodPlan()
    assert plan([leaving]).create == (None,)


def test_restarts_count_where_pods_are_restarted_on_failure() -> None:
    pod = pod_with("one", "Running")
    restarted = replace(pod, status=replace(pod.status, container_statuses=(ContainerStatus(restart_count=2),)))
    template = {"spec": {"restartPolicy": "OnFailure"}}
    assert reason([restarted], backoff_limit=2, template=template) == "BackoffLimitExceeded"
    assert reason([restarted], backoff_limit=3, template=template) is None


@pytest.mark.parametrize(("passed", "found"), [(59, None), (60, "DeadlineExceeded")])
def test_the_deadline(passed: int, found: str | None) -> None:
    job = replace(job_with(active_deadline_seconds=60), status=JobStatus(start_time=START - timedelta(seconds=passed)))
    target = assess(job, [], START).target
    assert (target.reason if target is not None else None) == found


def test_failed_indexes_beyond_the_most() -> None:
    pods = [pod_with(str(index), "Failed", index=index) for index in range(2)]
    spec = {"completions": 5, "completion_mode": "Indexed", "backoff_limit_per_index": 0}
    assert reason(pods, max_failed_indexes=1, **spec) == "MaxFailedIndexesExceeded"
    assert reason(pods, max_failed_indexes=2, **spec) is None


def test_a_job_whose_indexes_have_all_ended_fails_with_one_of_them() -> None:
    pods = [pod_with("0", "Failed", index=0), pod_with("1", "Succeeded", index=1)]
    spec = {"completions": 2, "completion_mode": "Indexed", "backoff_limit_per_index": 0}
    assert reason(pods, **spec) == "FailedIndexes"


@pytest.mark.parametrize(
    ("rule", "is_met"),
    [
        (SuccessPolicyRule(succeeded_count=2), True),
        (SuccessPolicyRule(succeeded_count=3), False),
        (SuccessPolicyRule(succeeded_indexes="0,2"), True),
        (SuccessPolicyRule(succeeded_indexes="0-2"), False),
        (SuccessPolicyRule(succeeded_indexes="0-2", succeeded_count=2), True),
        (SuccessPolicyRule(succeeded_indexes="rubbish"), False),
    ],
)
def test_a_success_policy(rule: SuccessPolicyRule, is_met: bool) -> None:
    pods = [pod_with(str(index), "Succeeded", index=index) for index in (0, 2)]
    spec = {"completions": 5, "completion_mode": "Indexed", "success_policy": SuccessPolicy(rules=(rule,))}
    assert reason(pods, **spec) == ("SuccessPolicy" if is_met else None)


# The policy for pods that have failed.


@pytest.mark.parametrize(
    ("operator", "values", "code", "action"),
    [
        ("In", (42,), 42, "Ignore"),
        ("In", (42,), 1, "Count"),
        ("NotIn", (42,), 1, "Ignore"),
        ("NotIn", (1,), 1, "Count"),
    ],
)
def test_exit_codes(operator: str, values: tuple[int, ...], code: int, action: str) -> None:
    assert verdict(policy("Ignore", operator, values), failed_with(code)).action == action


def test_conditions_of_the_pod() -> None:
    pod = pod_with("evicted", "Failed")
    evicted = replace(
        pod, status=replace(pod.status, conditions=(PodCondition(type="DisruptionTarget", status="True"),))
    )
    rule = PodFailurePolicyRule(action="Ignore", on_pod_conditions=(OnPodCondition(type="DisruptionTarget"),))
    rules = PodFailurePolicy(rules=(rule,))
    assert (verdict(rules, evicted).counts, verdict(rules, pod).counts) == (False, True)


def test_ignored_failures_do_not_reach_the_limit() -> None:
    pods = [failed_with(42)]
    assert reason(pods, backoff_limit=0, pod_failure_policy=policy("Ignore")) is None
    assert reason(pods, backoff_limit=0, pod_failure_policy=policy("Count")) == "BackoffLimitExceeded"


# What a pod has from the one before it.


@pytest.mark.parametrize(("others", "stays"), [([], True), ([pod_with("next", "Pending", index=0)], False)])
def test_a_failed_pod_stays_until_its_successor_has_its_count(others: list[Pod], stays: bool) -> None:
    job = job_with(completions=2, completion_mode="Indexed", backoff_limit_per_index=5)
    assessment = assess(job, [pod_with("failed", "Failed", index=0), *others], START)
    assert (0 in assessment.replaced_later) is stays
    assert [pod.metadata.uid for pod in track(assessment, PodWrites(), START).release] == ([] if stays else ["failed"])


@pytest.mark.parametrize(
    ("action", "counts"),
    [
        ("Count", {INDEX_FAILURE_COUNT: "3"}),
        ("Ignore", {INDEX_FAILURE_COUNT: "2", INDEX_IGNORED_FAILURE_COUNT: "1"}),
    ],
)
def test_the_failures_of_an_index_are_handed_on(action: str, counts: dict[str, str]) -> None:
    job = job_with(backoff_limit_per_index=5, pod_failure_policy=policy(action))
    before = failed_with(42, annotations={INDEX_FAILURE_COUNT: "2"})
    annotations = new_pod(job, 0, before)["metadata"]["annotations"]
    assert {key: value for key, value in annotations.items() if "failure-count" in key} == counts


def test_a_long_name_of_a_job_leaves_room_for_the_index() -> None:
    job = job_with()
    named = replace(job, metadata=replace(job.metadata, name="a" * 63))
    assert new_pod(named, 12, None)["metadata"]["generateName"] == "a" * 54 + "-12-"
