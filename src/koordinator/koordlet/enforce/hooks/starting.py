"""Calls the hooks of a stage for a pod or container that is about to start, whichever runtime starts it.

Where two of them return a value for the same thing, the later one counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext
from koordinator.koordlet.enforce.hooks.reconciler import Reconciler
from koordinator.koordlet.enforce.hooks.registry import Hooks, Stage
from koordinator.koordlet.enforce.hooks.resized_pods import ResizedPods
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.node import grpc_messages
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.grpc_messages import GrpcError

logger = logging.getLogger(__name__)


_VALUES: Final = tuple(each.name for each in fields(Change) if each.name not in ("reason", "priority"))

Observe = Callable[[str, str, str, float], None]
"""Called after each call of a hook with the hook, the stage, ``success`` or ``failed``, and seconds."""


@dataclass(frozen=True, slots=True)
class StartingHooks:
    """``fails``: whether the error of a hook keeps a pod from starting, instead of being logged."""

    hooks: Hooks
    rules: Callable[[], Rules]
    reconciler: Reconciler
    resized: ResizedPods
    clock: Clock
    observe: Observe
    fails: bool = False

    def pod(self, stage: Stage, pod: PodContext) -> Change | None:
        """What the hooks want; what is to be written of the pod's own cgroup is written. GrpcError if one fails."""
        rules = self.rules()
        calls = {hook.name: partial(hook.pod, pod, rules) for hook in self.hooks.at(stage) if hook.pod is not None}
        change = _merge(self._call(stage, pod, calls))
        if stage is Stage.PRE_RUN_POD_SANDBOX and pod.uid and pod.cgroup:
            self.reconciler.start(pod, rules)
        return change

    def container(self, stage: Stage, pod: PodContext, container: ContainerContext) -> Change | None:
        """What the hooks want of a container. GrpcError if one fails."""
        rules = self.rules()
        hooks = ((hook.name, hook.container) for hook in self.hooks.at(stage))
        calls = {name: partial(call, pod, container, rules) for name, call in hooks if call is not None}
        change = _merge(self._call(stage, pod, calls))
        if stage is Stage.PRE_UPDATE_CONTAINER_RESOURCES:
            self.resized.notice(pod, container.id, _quota(container, change))
        return change

    def _call(
        self, stage: Stage, pod: PodContext, calls: Mapping[str, Callable[[], Change | None]]
    ) -> Iterator[Change]:
        for name, call in calls.items():
            started = self.clock.monotonic()
            status = "failed"
            try:
                change = call()
                status = "success"
            except HookError as error:
                if self.fails:
                    raise GrpcError(grpc_messages.UNKNOWN, f"{name}: {error}") from error
                logger.warning("%s, %s, pod %s: %s", stage, name, pod.key, error)
                continue
            finally:
                self.observe(name, stage, status, self.clock.monotonic() - started)
            if change is not None:
                yield change


def _merge(given: Iterable[Change]) -> Change | None:
    """All of them in one; the last that says something of a thing counts."""
    changes = list(given)
    if not changes:
        return None
    merged: dict[str, object] = {}
    for change in changes:
        for name in _VALUES:
            value = getattr(change, name)
            if name == "environment":
                merged[name] = {**merged.get(name, {}), **value}  # type: ignore[dict-item]
            elif isinstance(value, tuple):
                merged[name] = (*merged.get(name, ()), *value)  # type: ignore[misc]
            elif value is not None:
                merged[name] = value
    return Change("; ".join(dict.fromkeys(change.reason for change in changes)), **merged)  # type: ignore[arg-type]


def _quota(container: ContainerContext, change: Change | None) -> int:
    """What a container gets with an update, of the kubelet or of a hook."""
    if change is not None and change.cpu_quota is not None:
        return change.cpu_quota
    return NO_LIMIT if container.bandwidth is None else container.bandwidth.quota
