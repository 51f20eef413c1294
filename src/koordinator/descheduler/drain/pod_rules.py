"""Which pods of a node a drain moves, which it leaves alone, and which keep it from its end (as kubectl drain does)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Final

from koordinator.api.codec import DecodeError, decode
from koordinator.api.drain_node import MIGRATE_DIRECTLY, WAIT_FIRST, DrainNodeSpec, MigrationPolicy
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod, is_finished, is_mirror, is_static
from koordinator.api.pod_migration_job import RESERVATION_FIRST
from koordinator.descheduler.drain.plan import MIGRATION_POLICY
from koordinator.descheduler.eviction_pipeline import EvictionPipeline, Policy
from koordinator.descheduler.framework import NOTHING_REFUSED, Refusals
from koordinator.descheduler.pod_facts import is_of_daemon_set
from koordinator.model.label_selector import CompiledSelector, compile_selector

_MODES: Final = (MIGRATE_DIRECTLY, WAIT_FIRST)
MakePolicy = Callable[[DrainNodeSpec], Policy]
"""Gives why MigrationController would not move a pod, however long one waits; the spec overrides some of its rules."""


class PodRules:
    """The rules of one DrainNode."""

    def __init__(self, spec: DrainNodeSpec, scheduler_names: Sequence[str], make_policy: MakePolicy) -> None:
        self._spec = spec
        self._scheduler_names = scheduler_names
        self._may_leave = EvictionPipeline(
            self._without_controller, self._with_data, self._without_reservations, make_policy(spec)
        )

    @cached_property
    def _selector(self) -> CompiledSelector | None:
        return compile_selector(self._spec.pod_selector) if self._spec.pod_selector is not None else None

    def concerns(self, pod: Pod) -> bool:
        """Whether the drain has anything to do with the pod. Raises SelectorError for a pod selector that cannot be
        used; only this does, so that a drain with one can still be given up."""
        if is_mirror(pod) or is_static(pod) or is_of_daemon_set(pod) or is_finished(pod):
            return False
        return self._selector is None or self._selector.matches(pod.metadata.labels)

    def is_moved_directly(self, pod: Pod) -> bool:
        """Whether no place is reserved for the pod before it is evicted."""
        return self._spec.migration_mode != RESERVATION_FIRST or controller_of(pod.metadata) is None

    def obstacle(self, pod: Pod) -> str:
        """Why the pod must not be moved; empty if it may."""
        return "; ".join(self._may_leave.evaluate(pod))

    def _without_controller(self, pod: Pod) -> Refusals:
        is_bare = controller_of(pod.metadata) is None
        return ["pod has no controller, set force"] if is_bare and not self._spec.force else NOTHING_REFUSED

    def _with_data(self, pod: Pod) -> Refusals:
        has_data = any(volume.empty_dir is not None for volume in pod.spec.volumes)
        is_kept = has_data and not self._spec.delete_empty_dir_data
        return ["pod uses emptyDir, set deleteEmptyDirData"] if is_kept else NOTHING_REFUSED

    def _without_reservations(self, pod: Pod) -> Refusals:
        if self.is_moved_directly(pod) or pod.spec.scheduler_name in self._scheduler_names:
            return NOTHING_REFUSED
        return [f"scheduler {pod.spec.scheduler_name} does not support reservations"]

    def policy(self, pod: Pod) -> tuple[MigrationPolicy, bool]:
        """When the pod is moved, and whether it says so itself."""
        text = pod.metadata.annotations.get(MIGRATION_POLICY)
        if text is None:
            return self._spec.migration_policy, False
        try:
            own = decode(text, MigrationPolicy)
        except DecodeError:
            return self._spec.migration_policy, False
        if own.mode not in _MODES or own.wait_duration < timedelta():
            return self._spec.migration_policy, False
        return own, True
