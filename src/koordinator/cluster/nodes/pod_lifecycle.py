"""What a simulated node does next with a pod: a function of the pod as the API has it and of a few remembered times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from koordinator.api.pod import Pod, is_finished


class Step(Enum):
    """The next thing that happens to a pod."""

    START = "start"
    """Its containers start: Pending becomes Running."""
    SUCCEED = "succeed"
    """Its work is done."""
    EXPIRE = "expire"
    """It ran longer than spec.activeDeadlineSeconds."""
    STOP = "stop"
    """It is being deleted and its containers have ended."""
    REMOVE = "remove"
    """Nothing of it is left: confirm the deletion."""


@dataclass(slots=True)
class PodTimes:
    """When things happened to a pod, in simulated seconds; from memory where we did them, else from the API."""

    seen: float
    started: float | None = None
    deleting: float | None = None


@dataclass(frozen=True, slots=True)
class PodDelays:
    """How long things take, in simulated seconds. ``run`` is None for pods that run until they are deleted."""

    start: float
    stop: float
    run: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A step and the moment (simulated seconds) at which it is due."""

    step: Step
    at: float


def next_step(pod: Pod, times: PodTimes, delays: PodDelays) -> Plan | None:
    """The next step of a bound pod, None when there is nothing to do until the pod changes."""
    if pod.metadata.deletion_timestamp is not None:
        return _deletion(pod, times, delays)
    if is_finished(pod):
        return None
    if times.started is None:
        return Plan(Step.START, times.seen + delays.start)
    return _end(pod, times.started, delays)


def _deletion(pod: Pod, times: PodTimes, delays: PodDelays) -> Plan | None:
    grace = pod.metadata.deletion_grace_period_seconds or 0
    since = times.seen if times.deleting is None else times.deleting
    if is_finished(pod):
        # With a grace of 0 the deletion is confirmed already; finalizers keep the object.
        return None if grace == 0 and pod.metadata.finalizers else Plan(Step.REMOVE, since)
    if times.started is None:
        return Plan(Step.STOP, since)
    return Plan(Step.STOP, since + min(float(grace), delays.stop))


def _end(pod: Pod, started: float, delays: PodDelays) -> Plan | None:
    deadline = pod.spec.active_deadline_seconds
    ends_itself = delays.run is not None and pod.spec.restart_policy in ("Never", "OnFailure")
    if ends_itself and delays.run is not None and (deadline is None or delays.run <= deadline):
        return Plan(Step.SUCCEED, started + delays.run)
    return None if deadline is None else Plan(Step.EXPIRE, started + deadline)
