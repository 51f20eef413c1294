"""A Job and its pods in memory, moved along by the decisions of the controller alone: no client, no cache, no clock.

A pass may be cut off after any write, as by a crash; whatever is left to do must follow from the Job and its pods.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from koordinator.api.batch import Job, JobSpec, finished_condition
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.cluster.controllers.job.assessment import assess
from koordinator.cluster.controllers.job.backoff import Backoff
from koordinator.cluster.controllers.job.pod_plan import plan_pods
from koordinator.cluster.controllers.job.pods import COMPLETION_INDEX, INDEX_FAILURE_COUNT, TRACKING_FINALIZER
from koordinator.cluster.controllers.job.tracking import PodWrites, conclude, track
from koordinator.cluster.controllers.pod_state import is_active, is_terminating

START = datetime(2026, 1, 1, tzinfo=UTC)


class Crash(Exception):
    """The controller ends in the middle of a pass."""


def job_with(**spec: Any) -> Job:
    """A Job as the API server defaults it."""
    given = {"parallelism": 1, "completions": 1, "backoff_limit": 6} | spec
    return Job(metadata=ObjectMeta(name="work", namespace="default", uid="job"), spec=JobSpec(**given))


def pod_with(uid: str, phase: str = "Pending", *, index: int | None = None, **metadata: Any) -> Pod:
    """A pod of that Job, which is to be counted."""
    annotations = {} if index is None else {COMPLETION_INDEX: str(index)}
    given: dict[str, Any] = {
        "name": uid,
        "namespace": "default",
        "uid": uid,
        "finalizers": (TRACKING_FINALIZER,),
        "creation_timestamp": START,
        "annotations": annotations | metadata.pop("annotations", {}),
    }
    return Pod(metadata=ObjectMeta(**(given | metadata)), spec=PodSpec(), status=PodStatus(phase=phase))


class JobInMemory:
    """``step`` is called after each write of a pass with the number of the write, and may raise ``Crash``."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pods: dict[str, Pod] = {}
        self.now = START
        self.created = 0
        self.deleted_as_surplus = 0
        self.succeeded_indexes: list[str] = []
        self._step: Callable[[], None] = lambda: None

    @property
    def is_finished(self) -> bool:
        return finished_condition(self.job) is not None

    def run_pass(self, step: Callable[[], None] = lambda: None) -> None:
        """One pass of the controller; after a ``Crash`` the rest of it is left out."""
        self._step = step
        with suppress(Crash):
            self._run_pass()
        self._collect()

    def set_phase(self, uid: str, phase: str) -> None:
        """What the kubelet of the pod reports."""
        pod = self.pods[uid]
        if phase == "Succeeded" and COMPLETION_INDEX in pod.metadata.annotations and is_active(pod):
            self.succeeded_indexes.append(pod.metadata.annotations[COMPLETION_INDEX])
        self.pods[uid] = replace(pod, status=replace(pod.status, phase=phase))
        self._collect()

    def delete(self, uid: str) -> None:
        """What kubectl delete pod does."""
        pod = self.pods[uid]
        self.pods[uid] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=self.now))

    def _run_pass(self) -> None:
        if self.is_finished:
            return
        assessment = assess(self.job, list(self.pods.values()), self.now)
        plan = plan_pods(assessment, Backoff(), self.now)
        for pod in plan.delete:
            if not plan.counts:
                self._release(pod)
                self.deleted_as_surplus += 1
            self.delete(pod.metadata.uid)
            self._step()
        for index in plan.create:
            self._create(index, assessment.replaced_later.get(-1 if index is None else index))
            self._step()
        writes = PodWrites(len(plan.create), {pod.metadata.uid for pod in plan.delete})
        tracking = track(assessment, writes, self.now)
        self.job = replace(self.job, status=tracking.status)
        self._step()
        for pod in tracking.release:
            self._release(pod)
            self._step()
        status, _ = conclude(tracking, [pod.metadata.uid for pod in tracking.release])
        self.job = replace(self.job, status=status)

    def _create(self, index: int | None, failed: Pod | None) -> None:
        self.created += 1
        self.now += timedelta(seconds=1)
        count = 0 if failed is None else int(failed.metadata.annotations[INDEX_FAILURE_COUNT]) + 1
        uid = f"pod-{self.created}"
        counted = {INDEX_FAILURE_COUNT: str(count)}
        self.pods[uid] = pod_with(uid, index=index, creation_timestamp=self.now, annotations=counted)

    def _release(self, pod: Pod) -> None:
        kept = self.pods.get(pod.metadata.uid)
        if kept is not None:
            self.pods[pod.metadata.uid] = replace(kept, metadata=replace(kept.metadata, finalizers=()))

    def _collect(self) -> None:
        """Pods that are deleted and have ended vanish once nothing holds them."""
        for uid, pod in list(self.pods.items()):
            leaves = pod.metadata.deletion_timestamp is not None and not is_terminating(pod)
            if leaves and not pod.metadata.finalizers:
                del self.pods[uid]
