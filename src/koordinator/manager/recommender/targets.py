"""Which pods a Recommendation is about: those of its workload, or those that its label selector matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import LabelSelector, Object, OwnerReference, WireStruct, controller_of
from koordinator.api.recommendation import POD_SELECTOR, WORKLOAD, Recommendation, RecommendationTarget
from koordinator.api.workload import ReplicationController
from koordinator.base.clock import Clock
from koordinator.kube.discovery import ObjectName, ObjectPaths, UnknownKindError
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector, parse_selector
from koordinator.model.recommendations import DEFAULT_API_VERSIONS

INVALID_TARGET: Final = "InvalidTarget"
UNSUPPORTED_TARGET: Final = "UnsupportedTarget"
NO_PODS_MATCHED: Final = "NoPodsMatched"
_TARGET_UNKNOWN: Final = "TargetUnknown"

_FRESH: Final = 300.0
"""Seconds for which a workload's selector is remembered. Selectors of most kinds cannot be changed."""
_FRESH_PROBLEM: Final = 30.0
_LONGEST_CHAIN: Final = 5


class _SelectorSpec(WireStruct):
    selector: LabelSelector | None = None


class _Selecting(Object):
    """A workload with a label selector for its pods."""

    spec: _SelectorSpec = _SelectorSpec()


class _Labels(WireStruct):
    labels: dict[str, str] = {}


class _PodTemplate(WireStruct):
    metadata: _Labels = _Labels()


class _JobSpec(WireStruct):
    template: _PodTemplate = _PodTemplate()


class _JobTemplate(WireStruct):
    spec: _JobSpec = _JobSpec()


class _CronJobSpec(WireStruct):
    job_template: _JobTemplate = _JobTemplate()


class _CronJob(Object):
    spec: _CronJobSpec = _CronJobSpec()


class _ScaleStatus(WireStruct):
    selector: str = ""


class _Scale(Object):
    status: _ScaleStatus = _ScaleStatus()


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the pods of a Recommendation are not known, as the reason and the message of a condition."""

    reason: str
    message: str

    @property
    def is_unsupported(self) -> bool:
        """Whether the Recommendation has to be corrected."""
        return self.reason in (INVALID_TARGET, UNSUPPORTED_TARGET)


@dataclass(frozen=True, slots=True)
class Target:
    """The pods with these labels; of a workload, only those that it controls."""

    selector: CompiledSelector
    workload_uid: str = ""


@dataclass(slots=True)
class _Resolved:
    generation: int
    result: Target | Problem
    at: float


@dataclass(slots=True)
class _Owner:
    """The controller of an owner of pods; None if it has none. ``is_known``: False if it could not be read."""

    controller: OwnerReference | None
    is_known: bool
    at: float
    used: int = 0


class TargetResolver:
    """Reads workloads and the owners of pods from the API server, and remembers them."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._paths = ObjectPaths(client)
        self._resolved: dict[str, _Resolved] = {}
        self._owners: dict[str, _Owner] = {}
        self._pass = 0

    def begin_pass(self, existing: Iterable[str]) -> None:
        """Forget what belongs to Recommendations that no longer exist (``existing`` are the UIDs of the others) and
        the owners that were not needed in the last pass."""
        kept = set(existing)
        self._resolved = {uid: each for uid, each in self._resolved.items() if uid in kept}
        self._owners = {uid: owner for uid, owner in self._owners.items() if owner.used == self._pass}
        self._pass += 1

    async def resolve(self, recommendation: Recommendation) -> Target | Problem:
        """Return the target; a failure of the API server is a Problem unless the target was known before."""
        uid, generation = recommendation.metadata.uid, recommendation.metadata.generation
        known = self._resolved.get(uid)
        now = self._clock.monotonic()
        if known is not None and known.generation == generation:
            fresh = _FRESH if isinstance(known.result, Target) else _FRESH_PROBLEM
            if now - known.at < fresh:
                return known.result
        else:
            known = None
        try:
            result = await self._read(recommendation)
        except KubeError as error:
            if known is not None and isinstance(known.result, Target):
                return known.result
            result = Problem(_TARGET_UNKNOWN, f"spec.target cannot be read: {error}")
        self._resolved[uid] = _Resolved(generation, result, now)
        return result

    async def matching(self, target: Target, pods: Iterable[ObservedPod]) -> Sequence[ObservedPod]:
        """The pods of the target among those of its namespace, without those that are finished."""
        selected = [pod for pod in pods if not pod.is_finished and target.selector.matches(pod.metadata.labels)]
        if not target.workload_uid:
            return selected
        return [pod for pod in selected if await self._is_controlled(pod, target.workload_uid)]

    def has_no_pods(self, recommendation: Recommendation) -> None:
        """No pod matches the target: read it again soon, since the workload may have been created anew."""
        known = self._resolved.get(recommendation.metadata.uid)
        if known is not None:
            known.at = min(known.at, self._clock.monotonic() - _FRESH + _FRESH_PROBLEM)

    async def _read(self, recommendation: Recommendation) -> Target | Problem:
        target = recommendation.spec.target
        if target.type == WORKLOAD:
            return await self._read_workload(target, recommendation.metadata.namespace)
        if target.type != POD_SELECTOR:
            allowed = f"{WORKLOAD} and {POD_SELECTOR} are allowed"
            return Problem(INVALID_TARGET, f"spec.target.type: {target.type!r}: {allowed}")
        path = "spec.target.podSelector"
        if target.pod_selector is None:
            return Problem(INVALID_TARGET, f"{path} is missing, which the type {POD_SELECTOR} requires")
        return _checked(target.pod_selector, path)

    async def _read_workload(self, target: RecommendationTarget, namespace: str) -> Target | Problem:
        workload = target.workload
        path = "spec.target.workload"
        if workload is None:
            return Problem(INVALID_TARGET, f"{path} is missing, which the type {WORKLOAD} requires")
        api_version = workload.api_version or DEFAULT_API_VERSIONS.get(workload.kind, "")
        if not api_version:
            kinds = ", ".join(sorted(DEFAULT_API_VERSIONS))
            return Problem(INVALID_TARGET, f"{path}.apiVersion is missing, which may be so only for the kinds {kinds}")
        name = ObjectName(api_version, workload.kind, workload.name)
        is_built_in = DEFAULT_API_VERSIONS.get(workload.kind) == api_version
        try:
            object_path = await self._paths.path(name, namespace, "" if is_built_in else "scale")
        except (UnknownKindError, DecodeError) as error:
            return Problem(UNSUPPORTED_TARGET, f"{path}: {error}")
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            return Problem(UNSUPPORTED_TARGET, f"{path}.apiVersion: the API server does not have {api_version}")
        try:
            body = await self._client.raw("GET", object_path)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            what = f"{workload.kind} {namespace}/{workload.name} does not exist"
            return Problem(NO_PODS_MATCHED, what if is_built_in else f"{what}, or has no subresource scale")
        try:
            return _selected(workload.kind, body, path) if is_built_in else _scaled(body, path)
        except DecodeError as error:
            return Problem(UNSUPPORTED_TARGET, f"{path}: the {workload.kind} cannot be read: {error}")

    async def _is_controlled(self, pod: ObservedPod, uid: str) -> bool:
        """Whether the workload controls the pod, directly or through other objects.

        An owner that cannot be read ends the chain: then the labels alone decide.
        """
        owner = controller_of(pod.metadata)
        for _ in range(_LONGEST_CHAIN):
            if owner is None:
                return False
            if owner.uid == uid:
                return True
            above = await self._owner(owner, pod.metadata.namespace)
            if not above.is_known:
                return True
            owner = above.controller
        return False

    async def _owner(self, reference: OwnerReference, namespace: str) -> _Owner:
        known = self._owners.get(reference.uid)
        if known is None or not (known.is_known or self._clock.monotonic() - known.at < _FRESH):
            known = self._owners[reference.uid] = await self._read_owner(reference, namespace)
        known.used = self._pass
        return known

    async def _read_owner(self, reference: OwnerReference, namespace: str) -> _Owner:
        name = ObjectName(reference.api_version, reference.kind, reference.name)
        now = self._clock.monotonic()
        try:
            found = decode(await self._client.raw("GET", await self._paths.path(name, namespace)), Object)
        except (KubeError, UnknownKindError, DecodeError):
            return _Owner(None, is_known=False, at=now)
        # One with another UID was created under the same name after the pod's own owner had been deleted.
        is_known = found.metadata.uid == reference.uid
        return _Owner(controller_of(found.metadata) if is_known else None, is_known, now)


def _selected(kind: str, body: bytes, path: str) -> Target | Problem:
    """The target of a workload whose kind is built into Kubernetes."""
    if kind == "CronJob":
        cron_job = decode(body, _CronJob)
        labels = cron_job.spec.job_template.spec.template.metadata.labels
        if not labels:
            return Problem(UNSUPPORTED_TARGET, f"{path}: the pods of the CronJob have no labels to find them by")
        return _checked(LabelSelector(match_labels=labels), path, cron_job.metadata.uid)
    if kind == "ReplicationController":
        controller = decode(body, ReplicationController)
        return _checked(LabelSelector(match_labels=controller.spec.selector), path, controller.metadata.uid)
    selecting = decode(body, _Selecting)
    return _checked(selecting.spec.selector, path, selecting.metadata.uid)


def _scaled(body: bytes, path: str) -> Target | Problem:
    scale = decode(body, _Scale)
    if not scale.status.selector:
        return Problem(UNSUPPORTED_TARGET, f"{path}: its subresource scale has no status.selector")
    try:
        return Target(parse_selector(scale.status.selector), scale.metadata.uid)
    except SelectorError as error:
        return Problem(UNSUPPORTED_TARGET, f"{path}: status.selector of its subresource scale: {error}")


def _checked(selector: LabelSelector | None, path: str, uid: str = "") -> Target | Problem:
    try:
        compiled = compile_selector(selector)
    except SelectorError as error:
        return Problem(INVALID_TARGET, f"{path}: {error}")
    if compiled.empty or compiled.nothing:
        return Problem(INVALID_TARGET, f"{path}: the label selector is empty, so that it would match every pod")
    return Target(compiled, uid)
