"""The binding cycle: what becomes of a pod between the node that it is assumed on and its end.

    reserved ─┬─ Permit plugins delay it ──► waiting ─┐
              └───────────────────────────────────────┴─► in PreBind, if plugins have work ──► being bound ──► ended

Any stage may be the last one. The end has one outcome, which is told once: the pod is bound, or its room is free again.
Members of gangs and Reservations go the same way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from koordinator.scheduler.binding.binder import Binder, Binding, Finished, Stage
from koordinator.scheduler.binding.pre_bind import PreBindStage
from koordinator.scheduler.binding.requests import Outcome, Result
from koordinator.scheduler.engine.waiting_pods import PermitStatus, WaitingPods

_LONGEST_WAIT: Final = 900.0


class BindingCycle:
    """Moves bindings from one stage to the next. ``finished`` is called for those that end while they wait, and
    ``waited`` for all that have waited: whether they were allowed, and the seconds since the attempt began."""

    def __init__(
        self,
        pods: WaitingPods,
        pre_bind: PreBindStage,
        binder: Binder,
        finished: Finished,
        waited: Callable[[bool, float], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._pods = pods
        self._pre_bind = pre_bind
        self._binder = binder
        self._finished = finished
        self._waited = waited
        self._monotonic = monotonic
        self._deadlines: list[tuple[float, str, str, float]] = []
        """(when, uid, plugin, seconds)."""

    def wait(self, binding: Binding, waits: Mapping[str, float]) -> None:
        """Delay the binding for the plugins in ``waits``, each with its timeout in seconds."""
        binding.stage = Stage.WAITING
        now, pod = self._monotonic(), binding.placement.pod
        deadlines = {plugin: now + min(seconds, _LONGEST_WAIT) for plugin, seconds in waits.items()}
        self._pods.add(pod, binding.placement.node_name, deadlines, partial(self._decided, binding))
        for plugin, when in deadlines.items():
            heapq.heappush(self._deadlines, (when, pod.uid, plugin, when - now))

    def proceed(self, binding: Binding) -> None:
        """Nothing delays the binding any more."""
        try:
            following = self._pre_bind if self._pre_bind.is_needed(binding) else self._binder
            following.submit(binding)
        except Exception as error:
            self._pre_bind.refuse(binding, str(error) or type(error).__name__)

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do next, in seconds of the clock; None for never."""
        while self._deadlines and not self._is_due_for(*self._deadlines[0][1:3]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self) -> None:
        """Reject the pods whose timeout has expired."""
        now = self._monotonic()
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, uid, plugin, seconds = heapq.heappop(self._deadlines)
            waiting = self._pods.get(uid)
            if waiting is not None:
                waiting.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")

    def _decided(self, binding: Binding, status: PermitStatus) -> None:
        self._waited(status.allowed, self._monotonic() - binding.started)
        if status.allowed:
            self.proceed(binding)
        else:
            self._finished(binding, Outcome(Result.REJECTED, status.message, status.plugin))

    def _is_due_for(self, uid: str, plugin: str) -> bool:
        waiting = self._pods.get(uid)
        return waiting is not None and plugin in waiting.deadlines
