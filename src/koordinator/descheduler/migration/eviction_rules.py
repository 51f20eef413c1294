"""Which pods may be evicted at all, as the arguments of MigrationController say, whatever else is going on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.pod import Pod, is_mirror, is_static
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.migration import arguments as gates
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.pod_order import cost
from koordinator.descheduler.pod_predicates import (
    has_claim,
    has_local_storage,
    is_evictable_by_annotation,
    is_of_daemon_set,
    is_system_critical,
    is_terminating,
)
from koordinator.model.label_selector import compile_selector

_NEVER: Final = 2**31 - 1
"""The eviction cost of a pod that must not be evicted."""


class EvictionRules:
    """The rules that no waiting changes; those that are named in ``skipEvictionGates`` do not apply."""

    def __init__(self, args: MigrationControllerArgs, priority_of_class: Callable[[str], int | None]) -> None:
        """``priority_of_class`` is the value of a PriorityClass, None if there is none of that name."""
        self._args = args
        self._priority_of_class = priority_of_class
        self._local_storage = args.evict_local_storage_pods or args.skips(gates.LOCAL_STORAGE)
        self._system_critical = args.evict_system_critical_pods or args.skips(gates.SYSTEM_CRITICAL)
        self._ignores_claims = args.ignore_pvc_pods and not args.skips(gates.PVC)
        self._failed_bare_pods = args.evict_failed_bare_pods or args.skips(gates.BARE_PODS)
        self._all_bare_pods = args.evict_all_bare_pods or args.skips(gates.BARE_PODS)
        self._threshold = None if args.skips(gates.PRIORITY_THRESHOLD) else args.priority_threshold
        self._namespaces = None if args.skips(gates.NAMESPACES) else args.namespaces
        chosen = None if args.skips(gates.LABEL_SELECTOR) else args.label_selector
        self._selector = compile_selector(chosen) if chosen is not None else None

    def refusals(self, pod: Pod) -> Refusals:
        """Why the pod must not be evicted; nothing keeps one that is forced."""
        if is_evictable_by_annotation(pod):
            return NOTHING_REFUSED
        return [*self._outside(pod), *self._never(pod), *self._protected(pod), *self._of_nobody(pod)]

    def _outside(self, pod: Pod) -> Iterator[str]:
        namespaces, namespace = self._namespaces, pod.metadata.namespace
        if namespaces is not None and namespaces.include and namespace not in namespaces.include:
            yield f"includedNamespaces: {namespace} is not one of them"
        if namespaces is not None and namespace in namespaces.exclude:
            yield f"excludedNamespaces: {namespace} is one of them"
        if cost(pod, annotation_keys.EVICTION_COST) == _NEVER:
            yield f"podWithMaxEvictionCost: its annotation {annotation_keys.EVICTION_COST} is {_NEVER}"

    def _never(self, pod: Pod) -> Iterator[str]:
        if is_of_daemon_set(pod):
            yield "pod is a DaemonSet pod"
        if is_mirror(pod):
            yield "pod is a mirror pod"
        if is_static(pod):
            yield "pod is a static pod"
        if is_terminating(pod):
            yield "pod is terminating"

    def _of_nobody(self, pod: Pod) -> Iterator[str]:
        if self._all_bare_pods or pod.metadata.owner_references:
            return
        if not self._failed_bare_pods:
            yield "pod does not have any ownerRefs"
        elif pod.status.phase != "Failed":
            yield "pod does not have any ownerRefs and is not in failed phase"

    def _protected(self, pod: Pod) -> Iterator[str]:
        priority = pod.spec.priority
        if not self._system_critical and priority is not None:
            threshold = self._priority_threshold()
            if is_system_critical(pod):
                yield "pod has system critical priority"
            if threshold is not None and priority >= threshold:
                yield "pod has higher priority than specified priority class threshold"
        if not self._local_storage and has_local_storage(pod):
            yield "pod has local storage and descheduler is not configured with evictLocalStoragePods"
        if self._ignores_claims and has_claim(pod):
            yield "pod has a PVC and descheduler is configured to ignore PVC pods"
        if self._selector is not None and not self._selector.matches(pod.metadata.labels):
            yield "pod labels do not match the labelSelector filter in the policy parameter"

    def _priority_threshold(self) -> int | None:
        threshold = self._threshold
        if threshold is None:
            return None
        return self._priority_of_class(threshold.name) if threshold.name else threshold.value
