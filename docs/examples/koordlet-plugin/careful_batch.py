"""Best-effort pods that are even more careful: a strategy and a hook for koordlet."""

from __future__ import annotations

from koordinator.api.qos import QoSClass
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.node.kernel_files import MEMORY_HIGH, UNLIMITED, Target

TIGHT_MEMORY = "example.com/tight-memory"
IDLE_PODS = "example.com/idle-pods"
IDLE = "example.com/cpu-idle"
"""The annotation of a pod that is to run only where nobody else wants the CPU: "true" or "false"."""
_FULL = 0.8
"""Of the memory of the node."""


def tight_memory() -> Strategy:
    """While the node is full, best-effort pods are slowed down when they take more memory than they have now."""
    return Strategy(TIGHT_MEMORY, interval=10.0, decide=decide)


def decide(snapshot: Snapshot) -> Decision:
    """Decides on the snapshot alone: no file, no clock, no network. What is not known is None."""
    capacity = snapshot.node.status.capacity.get("memory") if snapshot.node is not None else None
    if capacity is None or snapshot.node_memory is None:
        return Decision(None, "the memory of the node is not known: everything stays as it is")
    is_full = snapshot.node_memory > capacity.value * _FULL
    reason = "the node is full" if is_full else "the node has memory left"
    settings = [
        DesiredSetting(
            TIGHT_MEMORY, Target(MEMORY_HIGH, usage.pod.cgroup), int(usage.memory) if is_full else UNLIMITED, reason
        )
        for usage in snapshot.pods
        if usage.pod.qos is QoSClass.BE and usage.memory is not None
    ]
    return Decision(tuple(settings), reason)


def idle_pods() -> Hook:
    """The pods with the annotation, and their containers, before they start and while they run."""
    return Hook(IDLE_PODS, pod=pod, container=container)


def pod(pod: PodContext, rules: Rules) -> Change | None:
    """None leaves the pod as it is; HookError is an event that its author gets."""
    text = pod.annotations.get(IDLE)
    if text is None:
        return None
    if text not in ("true", "false"):
        raise HookError(f"metadata.annotations[{IDLE}]: {text!r} is not usable, expected is true or false")
    return Change(f"the annotation {IDLE}", cpu_idle=int(text == "true"))


def container(pod_: PodContext, container: ContainerContext, rules: Rules) -> Change | None:
    """As its pod."""
    return pod(pod_, rules)
