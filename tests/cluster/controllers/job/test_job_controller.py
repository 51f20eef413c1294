"""The Job controller on an API server in memory."""

from __future__ import annotations

from typing import Any

from koordinator.api.kinds import JOBS, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.job.controller import JobController
from koordinator.cluster.controllers.job.leftovers import FinishedJobController, OrphanedPodController
from koordinator.cluster.controllers.job.pods import COMPLETION_INDEX, TRACKING_FINALIZER
from tests.cluster.controllers.running_controllers import Cluster, Document, asynchronous, running_controllers
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for


def spec_with(**spec: Any) -> Document:
    container = {"name": "main", "image": "busybox"}
    return {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}, **spec}


def conditions(job: Document) -> dict[str, str]:
    """The conditions that hold: type -> reason."""
    found = job["status"].get("conditions", [])
    return {each["type"]: each.get("reason", "") for each in found if each["status"] == "True"}


async def ended(cluster: Cluster, name: str = "work") -> Document:
    return await cluster.until(JOBS, name, lambda job: bool({"Complete", "Failed"} & conditions(job).keys()))


@asynchronous
async def test_a_job_completes() -> None:
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "work", spec_with())
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Succeeded")
        job = await ended(cluster)
    assert conditions(job) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert job["status"]["succeeded"] == 1
    assert job["status"]["uncountedTerminatedPods"] == {}
    assert job["status"]["completionTime"] == job["status"]["conditions"][1]["lastTransitionTime"]


@asynchronous
async def test_a_pod_is_what_the_template_says_and_the_jobs() -> None:
    async with running_controllers(JobController) as cluster:
        job = await cluster.create(JOBS, "work", spec_with())
        (pod,) = await cluster.pods(1)
    metadata = pod["metadata"]
    assert metadata["finalizers"] == [TRACKING_FINALIZER]
    assert metadata["generateName"] == "work-"
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == "work"
    assert metadata["ownerReferences"][0] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "work",
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


@asynchronous
async def test_the_pod_of_an_index_knows_it() -> None:
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "work", spec_with(completions=2, parallelism=2, completionMode="Indexed"))
        pods = await cluster.pods(2)
    last = pods[1]
    assert last["metadata"]["generateName"] == "work-1-"
    assert last["metadata"]["annotations"][COMPLETION_INDEX] == "1"
    assert last["metadata"]["labels"][COMPLETION_INDEX] == "1"
    assert last["spec"]["hostname"] == "work-1"
    assert [each["name"] for each in last["spec"]["containers"][0]["env"]] == ["JOB_COMPLETION_INDEX"]


@asynchronous
async def test_indexes_are_counted_in_the_status() -> None:
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "work", spec_with(completions=3, parallelism=3, completionMode="Indexed"))
        for pod in await cluster.pods(3):
            await cluster.set_phase(pod, "Succeeded")
        job = await ended(cluster)
    assert job["status"]["completedIndexes"] == "0-2"


@asynchronous
async def test_a_failed_pod_is_replaced_after_a_pause() -> None:
    clock = ManualClock()
    async with running_controllers(JobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(JOBS, "work", spec_with())
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Failed")
        await cluster.until(JOBS, "work", lambda job: job["status"].get("failed") == 1)
        assert not cluster.live_pods()
        await clock.advance(1000.0)
        (successor,) = await cluster.pods(1)
    assert successor["metadata"]["uid"] != pod["metadata"]["uid"]


@asynchronous
async def test_a_job_fails_at_its_backoff_limit() -> None:
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "work", spec_with(backoffLimit=0))
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Failed")
        job = await ended(cluster)
        event = await cluster.event("BackoffLimitExceeded")
    assert conditions(job) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert job["status"]["failed"] == 1
    assert event["message"] == "Job has reached the specified backoff limit"


@asynchronous
async def test_a_job_fails_at_its_deadline() -> None:
    clock = ManualClock()
    async with running_controllers(JobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(JOBS, "work", spec_with(activeDeadlineSeconds=60))
        await cluster.pods(1)
        await cluster.until(JOBS, "work", lambda job: job["status"].get("active") == 1)
        await clock.advance(60.0)
        job = await cluster.until(JOBS, "work", lambda job: "Failed" in conditions(job))
    assert conditions(job)["Failed"] == "DeadlineExceeded"


@asynchronous
async def test_a_suspended_job_has_no_pods_and_does_not_count_those_that_it_had() -> None:
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "work", spec_with())
        await cluster.pods(1)
        await cluster.patch(JOBS, "work", {"spec": {"suspend": True}})
        await cluster.pods(0)
        job = await cluster.until(JOBS, "work", lambda job: "Suspended" in conditions(job))
        await cluster.patch(JOBS, "work", {"spec": {"suspend": False}})
        await cluster.pods(1)
    assert "failed" not in job["status"]


@asynchronous
async def test_what_a_pod_failure_policy_says() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "work", spec_with(podFailurePolicy={"rules": [rule]}))
        (pod,) = await cluster.pods(1)
        status = {"name": "main", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0}
        status |= {"state": {"terminated": {"exitCode": 42}}}
        await cluster.set_phase(pod, "Failed", containerStatuses=[status])
        job = await ended(cluster)
    name = pod["metadata"]["name"]
    failed = next(each for each in job["status"]["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    assert failed["message"] == (
        f"Container main for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
    )


@asynchronous
async def test_a_controller_that_takes_over_counts_on() -> None:
    api = InMemoryApi()
    async with running_controllers(JobController, api=api) as cluster:
        await cluster.create(JOBS, "work", spec_with(completions=2))
        (pod,) = await cluster.pods(1)
    await cluster.set_phase(pod, "Succeeded")
    async with running_controllers(JobController, api=api) as cluster:
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Succeeded")
        job = await ended(cluster)
    assert job["status"]["succeeded"] == 2
    assert len(api.all(PODS)) == 2


@asynchronous
async def test_a_pod_that_the_cache_does_not_show_yet_is_not_created_again() -> None:
    clock = ManualClock()
    async with running_controllers(JobController, api=InMemoryApi(clock)) as cluster:
        cluster.freeze_cache(PODS)
        await cluster.create(JOBS, "work", spec_with())
        await cluster.until(JOBS, "work", lambda job: job.get("status", {}).get("active") == 1)
        await clock.advance(30.0)
        assert len(cluster.api.all(PODS)) == 1


@asynchronous
async def test_a_pod_is_not_counted_again_while_the_cache_shows_its_finalizer() -> None:
    clock = ManualClock()
    async with running_controllers(JobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(JOBS, "work", spec_with(completions=3))
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Succeeded")
        await cluster.until(JOBS, "work", lambda job: bool(job["status"].get("uncountedTerminatedPods")))
        cluster.freeze_cache(PODS)
        await cluster.until(JOBS, "work", lambda job: job["status"].get("succeeded") == 1)
        await clock.advance(30.0)
        job = cluster.api.document(JOBS, "work", "default")
    assert job["status"]["succeeded"] == 1


@asynchronous
async def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    async with running_controllers(JobController) as cluster:
        await cluster.create(JOBS, "other", spec_with(managedBy="example.com/queue"))
        await cluster.create(JOBS, "work", spec_with())
        pods = await cluster.pods(1)
    assert pods[0]["metadata"]["generateName"] == "work-"


@asynchronous
async def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    clock = ManualClock()
    async with running_controllers(JobController, FinishedJobController, api=InMemoryApi(clock)) as cluster:
        await cluster.create(JOBS, "work", spec_with(ttlSecondsAfterFinished=100))
        (pod,) = await cluster.pods(1)
        await cluster.set_phase(pod, "Succeeded")
        await ended(cluster)
        await clock.advance(99.0)
        assert "deletionTimestamp" not in cluster.api.document(JOBS, "work", "default")["metadata"]
        await clock.advance(1.0)
        await cluster.until(JOBS, "work", lambda job: "deletionTimestamp" in job["metadata"])


@asynchronous
async def test_pods_without_their_job_lose_the_finalizer() -> None:
    async with running_controllers(JobController, OrphanedPodController) as cluster:
        await cluster.create(JOBS, "work", spec_with())
        (pod,) = await cluster.pods(1)
        name = pod["metadata"]["name"]
        cluster.api.remove(JOBS, "work", "default")
        await wait_for(lambda: not cluster.api.document(PODS, name, "default")["metadata"].get("finalizers"))


@asynchronous
async def test_an_adopted_pod_is_counted() -> None:
    async with running_controllers(JobController) as cluster:
        template = spec_with()["template"] | {"metadata": {"labels": {"app": "work"}}}
        await cluster.create(PODS, "found", template["spec"], labels={"app": "work"})
        selector = {"matchLabels": {"app": "work"}}
        await cluster.create(JOBS, "work", spec_with(template=template, manualSelector=True, selector=selector))
        pod = await cluster.until(PODS, "found", lambda pod: bool(pod["metadata"].get("finalizers")))
        await cluster.set_phase(pod, "Succeeded")
        await ended(cluster)
    assert cluster.api.names(PODS) == ["found"]
