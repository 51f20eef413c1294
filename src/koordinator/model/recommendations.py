"""The Recommendation of a pod and the amounts in it: the one way by which every reader finds them.

A pod has the Recommendation, in its own namespace, of a workload in its chain of controllers, or else one whose
podSelector matches its labels; of several the one with the lowest name. The chain is told from the pod alone, so that a
look-up needs neither an informer nor a request: a ReplicaSet is named after its Deployment and the template hash that
is in a label of the pod, and a Job after its CronJob and the minute that it was due. What controls other kinds of
workload is not known here: the pods of these are found by the workload that controls them directly.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from koordinator.api.labels import POD_TEMPLATE_HASH, ROLLOUT_TEMPLATE_HASH
from koordinator.api.meta import ObjectMeta, controller_of
from koordinator.api.pod import Container, Pod, lasting_containers
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.recommendation import (
    CONFIG_UNSUPPORTED,
    LOW_CONFIDENCE,
    POD_SELECTOR,
    WORKLOAD,
    Recommendation,
    RecommendationTarget,
)
from koordinator.api.resource_names import CPU, MEMORY, extended_name
from koordinator.api.usable_amounts import MOST
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.model.pod_requests import canonical

_APPS: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
DEFAULT_API_VERSIONS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(_APPS, "apps/v1") | {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
)
"""Kind -> the API version that a target without one means."""
STALE_AFTER: Final = timedelta(hours=24)
_BY_TEMPLATE_HASH: Final = (
    (POD_TEMPLATE_HASH, "apps", "Deployment"),
    (ROLLOUT_TEMPLATE_HASH, "argoproj.io", "Rollout"),
)
"""The labels of the pods of a ReplicaSet, and what controls it then."""
_CRON_JOB_NAME: Final = re.compile(r"(.+)-[0-9]{8,}")
"""A Job of a CronJob: its name ends with the minute, since 1970, at which it was due."""


class WorkloadKey(NamedTuple):
    """A workload of any version, within a namespace."""

    group: str
    kind: str
    name: str


Amounts = Mapping[str, int]
"""``cpu`` in milli-cores, ``memory`` in bytes: native units, also for pods of mid, batch and free. Each is above 0."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """A Recommendation and what it says of each container."""

    source: Recommendation
    containers: Mapping[str, Amounts]

    @property
    def key(self) -> str:
        return self.source.metadata.key

    def unusable(self, now: datetime, *, low_confidence_is_used: bool = False) -> str:
        """Why the amounts must not be used, for people to read; empty if they may be."""
        for condition in self.source.status.conditions:
            if condition.status != "True":
                continue
            if condition.type == CONFIG_UNSUPPORTED:
                return f"Recommendation {self.key} is not supported: {condition.message}"
            if condition.type == LOW_CONFIDENCE and not low_confidence_is_used:
                return f"Recommendation {self.key} is of low confidence: {condition.message}"
        written = self.source.status.update_time
        if written is None or not self.containers:
            return f"Recommendation {self.key} recommends nothing yet"
        if now - written > STALE_AFTER:
            hours = (now - written) // timedelta(hours=1)
            return f"Recommendation {self.key} is stale: it was written {hours} hours ago"
        if written - now > STALE_AFTER:
            hours = (written - now) // timedelta(hours=1)
            return f"Recommendation {self.key} is dated {hours} hours ahead, so that its age is not known"
        return ""


def recommended(source: Recommendation) -> Recommended:
    """Read the amounts. Whoever may write the status chooses them: those of other resources, and those that are not
    above 0, are left out."""
    status = source.status.pod_status
    containers = {}
    for each in status.container_statuses if status is not None else ():
        amounts = {}
        if CPU in each.resources:
            amounts[CPU] = each.resources[CPU].milli
        if MEMORY in each.resources:
            amounts[MEMORY] = each.resources[MEMORY].value
        if any(amount > 0 for amount in amounts.values()):
            containers[each.container_name] = {name: amount for name, amount in amounts.items() if amount > 0}
    return Recommended(source, containers)


def precedence(source: Recommendation) -> tuple[bool, str]:
    """Of several Recommendations for one pod in one namespace, the lowest counts: the one of a workload before one with
    a selector, then the one with the lowest name."""
    return source.spec.target.type != WORKLOAD, source.metadata.name


def workload_of_target(target: RecommendationTarget) -> WorkloadKey | None:
    """The workload that the target names; None if it names none, or one of an unknown API version."""
    workload = target.workload
    if target.type != WORKLOAD or workload is None:
        return None
    api_version = workload.api_version or DEFAULT_API_VERSIONS.get(workload.kind, "")
    return WorkloadKey(_group(api_version), workload.kind, workload.name) if api_version else None


def workloads_of(pod: ObjectMeta) -> Sequence[WorkloadKey]:
    """The workloads that control the pod, the closest one first."""
    owner = controller_of(pod)
    if owner is None:
        return ()
    closest = WorkloadKey(_group(owner.api_version), owner.kind, owner.name)
    if closest[:2] == ("apps", "ReplicaSet"):
        for label, group, kind in _BY_TEMPLATE_HASH:
            digest = pod.labels.get(label)
            if digest and len(owner.name) > len(digest) + 1 and owner.name.endswith(f"-{digest}"):
                return closest, WorkloadKey(group, kind, owner.name[: -len(digest) - 1])
    elif closest[:2] == ("batch", "Job") and (matched := _CRON_JOB_NAME.fullmatch(owner.name)):
        return closest, WorkloadKey("batch", "CronJob", matched[1])
    return (closest,)


class RecommendationIndex:
    """All Recommendations, kept current by events; a look-up reads those of the pod's workloads, or those whose
    selector requires a label of the pod."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Recommended] = {}
        self._by_workload: dict[tuple[str, WorkloadKey], list[str]] = {}
        """Namespace and workload -> the names of its Recommendations, sorted."""
        self._by_label: dict[tuple[str, tuple[str, str] | None], dict[str, CompiledSelector]] = {}
        """Namespace and a label that the selectors require, None for those that require none -> selectors by name."""

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, namespace: str, name: str) -> Recommended:
        """The one of this name. Raises KeyError."""
        return self._by_name[namespace, name]

    def put(self, source: Recommendation) -> None:
        """Add a Recommendation, or replace the one of its name."""
        name = (source.metadata.namespace, source.metadata.name)
        known = self._by_name.get(name)
        self._by_name[name] = recommended(source)
        if known is not None:
            if known.source.spec.target == source.spec.target:
                return
            self._unlink(known.source)
        self._link(source)

    def remove(self, source: Recommendation) -> None:
        """Remove the Recommendation of this name, if there is one."""
        known = self._by_name.pop((source.metadata.namespace, source.metadata.name), None)
        if known is not None:
            self._unlink(known.source)

    def find(self, pod: ObjectMeta, namespace: str | None = None) -> Recommended | None:
        """The Recommendation of a pod, also one that must not be used: see ``Recommended.unusable``. ``namespace``: of
        a pod that is being created, whose metadata need not have it."""
        where = pod.namespace if namespace is None else namespace
        if self._by_workload:
            names = [found[0] for workload in workloads_of(pod) if (found := self._by_workload.get((where, workload)))]
            if names:
                return self._by_name[where, min(names)]
        if not self._by_label:
            return None
        labels = pod.labels
        names = [
            name
            for label in (*labels.items(), None)
            for name, selector in self._by_label.get((where, label), _NO_SELECTORS).items()
            if selector.matches(labels)
        ]
        return self._by_name[where, min(names)] if names else None

    def _link(self, source: Recommendation) -> None:
        namespace, name = source.metadata.namespace, source.metadata.name
        workload, selector = workload_of_target(source.spec.target), _selector_of(source)
        if workload is not None:
            insort(self._by_workload.setdefault((namespace, workload), []), name)
        elif selector is not None:
            self._by_label.setdefault((namespace, _label_of(selector)), {})[name] = selector

    def _unlink(self, source: Recommendation) -> None:
        namespace, name = source.metadata.namespace, source.metadata.name
        workload, selector = workload_of_target(source.spec.target), _selector_of(source)
        if workload is not None:
            names = self._by_workload[namespace, workload]
            names.remove(name)
            if not names:
                del self._by_workload[namespace, workload]
        elif selector is not None:
            selectors = self._by_label[namespace, _label_of(selector)]
            del selectors[name]
            if not selectors:
                del self._by_label[namespace, _label_of(selector)]


_NO_SELECTORS: Final[Mapping[str, CompiledSelector]] = MappingProxyType({})


def _selector_of(source: Recommendation) -> CompiledSelector | None:
    """None if the target has none that may be used: one that matches every pod may not."""
    target = source.spec.target
    if target.type != POD_SELECTOR:
        return None
    try:
        selector = compile_selector(target.pod_selector)
    except SelectorError:
        # The recommender names the mistake in a condition of the Recommendation.
        return None
    return None if selector.empty or selector.nothing else selector


def _label_of(selector: CompiledSelector) -> tuple[str, str] | None:
    return min(selector.equalities, default=None)


def _group(api_version: str) -> str:
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


RESOURCES: Final = (CPU, MEMORY)
"""Those of which something is recommended."""


def expected_usage(pod: Pod, found: Recommended) -> Mapping[str, Amounts]:
    """Resource -> container -> what it is expected to use, in milli-CPU and bytes whatever the class of the pod: of the
    containers and sidecars that something is recommended for. No container uses more than its limit, which the pods of
    mid, batch and free have under the names of their class."""
    priority = priority_class_with_default(pod)
    expected: dict[str, dict[str, int]] = {}
    for container in lasting_containers(pod):
        for resource, amount in found.containers.get(container.name, _NOTHING).items():
            expected.setdefault(resource, {})[container.name] = min(amount, _limit(container, resource, priority))
    return expected


_NOTHING: Final[Amounts] = {}


def _limit(container: Container, resource: str, priority: PriorityClass) -> int:
    name = extended_name(resource, priority)
    limit = container.resources.limits.get(name) if name else None
    amount = canonical(name, limit.nanos) if limit is not None else 0
    return amount if amount > 0 else MOST
