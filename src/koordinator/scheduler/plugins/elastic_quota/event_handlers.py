"""The event handlers of ElasticQuota, which update the accounts. All profiles with equal settings share one
instance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api import labels as label_keys
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTAS, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import IGNORE_OVERDUE, IGNORE_OVERHEAD, IGNORE_TERMINATING
from koordinator.scheduler.plugins.elastic_quota.accounts import (
    Accounts,
    CountedPod,
    PodKind,
    group_of,
)
from koordinator.scheduler.plugins.elastic_quota.amounts import AccountSettings, from_wire
from koordinator.scheduler.plugins.expirations import Expirations

_MEMO: Final = "ElasticQuota"
_numbers = itertools.count()
_AT_ONCE: Final = float("-inf")


class QuotaEventHandlers(EventHandler):
    """Updates the accounts. ``on_relief`` is called when a quota may admit more than before, unless because an assigned
    pod was deleted: plugins get an event for that anyway."""

    handles_status_updates = False

    def __init__(self, view: ClusterView, settings: AccountSettings) -> None:
        self.accounts = Accounts(settings)
        self.accounts.on_rules = self._on_rules
        self.on_relief: Callable[[], None] | None = None
        self._view = view
        self.on_reset()

    def on_reset(self) -> None:
        self.accounts.clear()
        self._on_rules()
        self._memo = f"ElasticQuota/{next(_numbers)}"
        """The key of what is counted of a pod: no other accounts have it."""
        self._leaving = Expirations[str]()
        """When terminating pods stop counting, by uid."""
        self._is_relieved = False
        """Whether overdue pods stopped counting since the last call of ``take_relief``."""
        self._unknown: set[str] = set()
        """The uids of pods that were placed on a node, in a simulation or by assuming them, before their API event."""

    def on_node(self, row: int, node: Node) -> None:
        if self.accounts.set_node(node.metadata.name, from_wire(node.status.allocatable)):
            self._relieve()

    def on_node_removed(self, row: int, name: str) -> None:
        self.accounts.remove_node(name)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if kind is not ELASTIC_QUOTAS:
            return
        if new is None:
            self.accounts.remove_quota(key)
            self._relieve()
        elif isinstance(new, ElasticQuota) and self.accounts.set_quota(new):
            self._relieve()

    def on_pod(self, pod: PodInfo, node_name: str) -> None:
        uid = pod.uid
        if uid in self._view.pseudo_pods:
            return
        self._unknown.discard(uid)
        known = self.accounts.pods.get(uid)
        if pod.pod.metadata.deletion_timestamp is not None:
            until = counts_until(pod.pod, self._view.gates)
            if self._is_over(until):
                self._leaving.discard(uid)
                if self.accounts.remove_pod(uid) is not None:
                    self._relieve()
                return
            if until is not None:
                self._leaving.set(uid, until)
        if self._count(pod, known, node_name != "" or (known is not None and known.is_assigned)):
            self._relieve()

    def on_pod_gone(self, pod: PodInfo) -> None:
        self._leaving.discard(pod.uid)
        known = self.accounts.remove_pod(pod.uid)
        if known is not None and not known.is_assigned:
            self._relieve()

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if pod.uid in self._view.pseudo_pods:
            return
        if pod.pod.metadata.deletion_timestamp is not None and self._is_over(counts_until(pod.pod, self._view.gates)):
            return
        known = self.accounts.pods.get(pod.uid)
        if known is None:
            self._unknown.add(pod.uid)
        if known is None or not assumed:
            self._count(pod, known, True)
        elif not known.is_assigned:
            # As the API has it: the pod that is on the node may have been changed since it was assumed.
            self.accounts.assign(known, True)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        if pod.uid in self._unknown:
            self._unknown.discard(pod.uid)
            self.accounts.remove_pod(pod.uid)
        elif (known := self.accounts.pods.get(pod.uid)) is not None and known.is_assigned:
            self.accounts.assign(known, False)

    def forget_overdue(self, now: datetime) -> None:
        """Stop counting terminating pods that became overdue by ``now``."""
        for uid in self._leaving.due(now.timestamp()):
            self._is_relieved |= self.accounts.remove_pod(uid) is not None

    @property
    def next_overdue(self) -> float | None:
        """When an overdue pod next lets its quota admit others, in seconds since the epoch; None if never."""
        if self._is_relieved:
            return 0.0
        return self._leaving.next

    def take_relief(self, now: datetime) -> bool:
        """Whether pods became overdue by ``now`` and since the last call, so that quotas may admit others."""
        self.forget_overdue(now)
        relieved, self._is_relieved = self._is_relieved, False
        return relieved

    def _is_over(self, until: float | None) -> bool:
        now = self._view.now
        return until is not None and (until <= _AT_ONCE or (now is not None and until <= now.timestamp()))

    def _count(self, pod: PodInfo, known: CountedPod | None, is_assigned: bool) -> bool:
        """Returns whether the pod was counted before, and otherwise."""
        kind: PodKind = pod.memo.get(self._memo) or self._kind_of(pod)
        if known is not None and known.kind is kind:
            # Mostly: a pod that was decided, or whose binding is confirmed.
            if known.is_assigned is not is_assigned:
                self.accounts.assign(known, is_assigned)
            return False
        counted = CountedPod(pod.uid, pod.key, kind, is_assigned)
        self.accounts.set_pod(counted)
        return known is not None and known != counted

    def _kind_of(self, pod: PodInfo) -> PodKind:
        metadata = pod.pod.metadata
        kind = PodKind(group_of(metadata), request_of(pod, self._view), pod.priority, is_non_preemptible(pod.pod))
        pod.memo[self._memo] = kind
        return kind

    def _on_rules(self) -> None:
        self._view.concerns_version += 1

    def _relieve(self) -> None:
        if self.on_relief is not None:
            self.on_relief()


def request_of(pod: PodInfo, view: ClusterView) -> Mapping[str, int]:
    """The pod's request by resource name."""
    known: Mapping[str, int] | None = pod.memo.get(_MEMO)
    if known is None:
        known = pod.request.amounts
        if pod.pod.spec.overhead and IGNORE_OVERHEAD in view.gates:
            spec = replace(pod.pod.spec, overhead={})
            known = make_pod_info(replace(pod.pod, spec=spec)).request.amounts
        pod.memo[_MEMO] = known
    return known


def counts_until(pod: Pod, gates: frozenset[str]) -> float | None:
    """When a terminating pod stops counting by the feature gates, in seconds since the epoch; None: it counts until it
    is deleted."""
    metadata = pod.metadata
    if metadata.deletion_timestamp is None:
        return None
    if IGNORE_TERMINATING in gates:
        return _AT_ONCE
    if IGNORE_OVERDUE not in gates:
        return None
    # The deletionTimestamp includes the grace period already; the original adds it once more.
    return metadata.deletion_timestamp.timestamp() + (metadata.deletion_grace_period_seconds or 0)


def is_non_preemptible(pod: Pod) -> bool:
    """Whether the pod must fit in its quota's min, and is never a victim."""
    return pod.metadata.labels.get(label_keys.QUOTA_PREEMPTIBLE) == "false"
