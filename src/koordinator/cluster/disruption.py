"""Keeps the status of PodDisruptionBudgets true: evictions and preemption go by it.

On a real cluster kube-controller-manager does this. It is the one controller that the embedded cluster has, since
without it no budget would ever let a pod go.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.background import LoopBody
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Change, OutcomeUnknown, Stored, WriteFailed
from koordinator.cluster.strategy.scale import scale_of
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.eviction import (
    DISRUPTION_ALLOWED,
    budget_resource,
    selects,
    set_allowed_condition,
    set_condition,
)
from koordinator.cluster.verbs.options import CONTROLLER_MANAGER, WriteOptions
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import modify

# The status of a PodDisruptionBudget, worked out from its pods.


DISRUPTION_TIMEOUT: Final = timedelta(minutes=2)
"""An evicted pod that is still there after this long is thought to stay."""

_SHARE: Final = re.compile(r"([0-9]+)%")

Replicas = Callable[[Sequence[Document]], int]
"""How many pods the controllers of some pods want altogether. Raises UnknownReplicas."""


class UnknownReplicas(KoordinatorError):
    """The number that a percentage refers to is not known; the text goes into the budget's condition."""


def budget_status(budget: Document, pods: Sequence[Document], replicas: Replicas, now: datetime) -> Document:
    """``pods`` are those that the budget selects."""
    result: Document = copied(budget)
    status = result["status"]
    try:
        expected, desired = _wanted(budget["spec"], pods, replicas)
    except UnknownReplicas as error:
        status["disruptionsAllowed"] = 0
        refused = {"type": DISRUPTION_ALLOWED, "status": "False", "reason": "SyncFailed", "message": str(error)}
        set_condition(status, refused, now)
        return dict(status)
    disrupted = _still_disrupted(status.get("disruptedPods") or {}, pods, now)
    healthy = sum(_counts(pod, disrupted) for pod in pods)
    status |= {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
        "disruptedPods": disrupted,
        "observedGeneration": budget["metadata"].get("generation") or 0,
    }
    set_allowed_condition(result, now)
    return dict(status)


def recheck_after(status: Document, now: datetime) -> timedelta | None:
    """When an eviction that is under way is to be looked at again."""
    ends = [_end(since) for since in (status.get("disruptedPods") or {}).values()]
    return min(ends) - now if ends else None


def _wanted(spec: Document, pods: Sequence[Document], replicas: Replicas) -> tuple[int, int]:
    """How many pods there should be, and how many of them healthy."""
    missing, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if missing is not None:
        expected = replicas(pods)
        return expected, max(0, expected - _amount(missing, expected))
    if isinstance(least, str):
        expected = replicas(pods)
        return expected, _amount(least, expected)
    return (0, 0) if least is None else (len(pods), least)


def _amount(limit: Any, of: int) -> int:
    """A number or a share, which is rounded up. Raises UnknownReplicas for neither."""
    if not isinstance(limit, str):
        return int(limit)
    share = _SHARE.fullmatch(limit)
    if share is None:
        raise UnknownReplicas("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-int(share[1]) * of // 100)


def _still_disrupted(disrupted: Document, pods: Sequence[Document], now: datetime) -> Document:
    there = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    return {name: since for name, since in disrupted.items() if name in there and _end(since) >= now}


def _counts(pod: Document, disrupted: Document) -> bool:
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") or metadata["name"] in disrupted:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)


def _end(since: str | None) -> datetime:
    if not since:
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(since) + DISRUPTION_TIMEOUT


# How many pods the controllers of some pods want: what a budget's shares are taken of.


class ControllerReplicas:
    """Reads the ``scale`` of whatever controls a pod; of a Deployment's ReplicaSet, that of the Deployment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def __call__(self, pods: Sequence[Document]) -> int:
        """Pods without a controller count as nothing. Raises UnknownReplicas."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = _controller(pod)
            if owner is None or owner["uid"] in wanted:
                continue
            found = self._replicas(owner, pod["metadata"]["namespace"])
            if found is None:
                raise UnknownReplicas(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            wanted |= found
        return sum(wanted.values())

    def _replicas(self, owner: Document, namespace: str) -> dict[str, int] | None:
        """By uid; a Deployment's under its own and under that of the ReplicaSet, which then counts for nothing."""
        resource = _resource_of(self._environment.registry, owner)
        if resource.scale is None:
            named = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            raise UnknownReplicas(f"{named} does not implement the scale subresource")
        obj = self._environment.lookup(resource.group, resource.plural, namespace, owner["name"])
        if obj is None or obj["metadata"]["uid"] != owner["uid"]:
            return None
        above = _controller(obj)
        if resource.kind == "ReplicaSet" and above is not None and above.get("kind") == "Deployment":
            found = self._replicas(above, namespace)
            return None if found is None else {**found, owner["uid"]: 0}
        try:
            return {owner["uid"]: scale_of(obj, resource.scale)["spec"].get("replicas") or 0}
        except ApiError as error:
            raise UnknownReplicas(error.message) from error


def _controller(obj: Document) -> Document | None:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _resource_of(registry: Registry, owner: Document) -> Resource:
    version, kind = owner["apiVersion"], owner["kind"]
    found = next((resource for resource in registry if (resource.api_version, resource.kind) == (version, kind)), None)
    if found is None:
        raise UnknownReplicas(f'no matches for kind "{kind}" in version "{version}"')
    return found


# Follows pods and budgets, and writes what has changed.


_LOG = logging.getLogger(__name__)
_RECHECK_SECONDS: Final = 1.0
"""How often it is looked whether an eviction is overdue or a write is to be tried again."""
_RETRY_SECONDS: Final = 5.0

_Key = tuple[str, str]
"""Namespace and name of a budget."""


class DisruptionController:
    """Costs next to nothing while there are no budgets."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._budgets: dict[str, dict[str, Document]] = {}
        self._due: dict[_Key, float] = {}
        self._replicas = ControllerReplicas(environment)
        pods = environment.registry.stored["", "pods"]
        assert pods is not None
        self._pods = pods
        self._resource = budget_resource(environment)

    def loops(self) -> Mapping[str, LoopBody]:
        """Name -> what runs until the store closes."""
        return {
            "disruption-budgets": self._watch_budgets,
            "disruption-budget-pods": self._watch_pods,
            "disruption-budget-evictions": self._recheck,
        }

    async def _watch_budgets(self) -> AsyncIterator[None]:
        storage, prefix = self._environment.storage, self._resource.prefix
        page = storage.list(prefix)
        self._budgets.clear()
        self._due.clear()
        with closing(storage.watch(prefix, page.revision)) as cursor:
            await self._note(Change("created", stored, None) for stored in page.items)
            yield
            while (changes := await cursor.next()) is not None:
                await self._note(changes)
                yield

    async def _note(self, changes: Iterable[Change]) -> None:
        for change in changes:
            namespace, name = change.key.split("/")[-2:]
            if change.type == "deleted":
                self._budgets.get(namespace, {}).pop(name, None)
                self._due.pop((namespace, name), None)
                continue
            self._budgets.setdefault(namespace, {})[name] = decode(self._resource, change.current)
            await self._sync((namespace, name))

    async def _watch_pods(self) -> AsyncIterator[None]:
        storage, prefix = self._environment.storage, self._pods.prefix
        with closing(storage.watch(prefix, storage.revision())) as cursor:
            await self._sync_all()
            yield
            while (changes := await cursor.next()) is not None:
                for key in self._concerned(changes):
                    await self._sync(key)
                yield

    def _concerned(self, changes: Sequence[Change]) -> list[_Key]:
        """The budgets that select a changed pod, as it is or as it was."""
        found: dict[_Key, None] = {}
        for change in changes:
            namespace = change.key.split("/")[-2]
            for name, budget in self._budgets.get(namespace, {}).items():
                states = [state for state in (change.current, change.previous) if state is not None]
                if any(self._selects(budget, state) for state in states):
                    found[namespace, name] = None
        return list(found)

    def _selects(self, budget: Document, stored: Stored) -> bool:
        labels: Mapping[str, str] = self._environment.selector_cache.labels(stored)
        return selects(budget, labels)

    async def _recheck(self) -> AsyncIterator[None]:
        clock = self._environment.clock
        while True:
            await clock.sleep(_RECHECK_SECONDS)
            for key in [key for key, due in self._due.items() if due <= clock.monotonic()]:
                await self._sync(key)
            yield

    async def _sync_all(self) -> None:
        for key in [(namespace, name) for namespace, budgets in self._budgets.items() for name in budgets]:
            await self._sync(key)

    async def _sync(self, key: _Key) -> None:
        namespace, name = key
        self._due.pop(key, None)
        target = Target(self._resource, namespace, name, "status")
        clock = self._environment.clock
        try:
            stored = await modify(
                self._environment, target, self._with_status, WriteOptions(user_agent=CONTROLLER_MANAGER)
            )
        except (ApiError, WriteFailed, OutcomeUnknown) as error:
            if isinstance(error, ApiError) and error.code == 404:
                return
            # An admission webhook, or a store that cannot write now.
            _LOG.warning("status of PodDisruptionBudget %s/%s: %s", namespace, name, error)
            self._due[key] = clock.monotonic() + _RETRY_SECONDS
            return
        except Exception:
            # One budget or pod that cannot be read must not keep the other budgets from being current.
            _LOG.exception("status of PodDisruptionBudget %s/%s", namespace, name)
            self._due[key] = clock.monotonic() + _RETRY_SECONDS
            return
        wait = recheck_after(decode(self._resource, stored)["status"], clock.now())
        if wait is not None:
            self._due[key] = clock.monotonic() + max(0.0, wait.total_seconds())

    def _with_status(self, budget: Document) -> Document:
        prefix = Target(self._pods, budget["metadata"]["namespace"]).prefix
        pods = [
            decode(self._pods, stored)
            for stored in self._environment.storage.list(prefix).items
            if self._selects(budget, stored)
        ]
        status = budget_status(budget, pods, self._replicas, self._environment.clock.now())
        return {**copied(budget), "status": status}
