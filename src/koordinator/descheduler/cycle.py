"""One pass over the cluster: a snapshot, the plugins of all profiles on it, and each step that they propose, held
against the live objects before an executor takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.eviction_pipeline import EvictionLimiter, EvictionPipeline
from koordinator.descheduler.executors import Rehearsal
from koordinator.descheduler.framework import (
    NOTHING_REFUSED,
    Cordon,
    DeletionCost,
    Eviction,
    EvictionResult,
    HotNode,
    Plan,
    Plugin,
    Refusals,
    Remark,
    Snapshot,
    Step,
)
from koordinator.descheduler.profiles import Profile
from koordinator.kube.errors import KubeError

TOO_SMALL: Final = "the cluster size is 0 or 1 meaning eviction causes service disruption or degradation"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step. ``refusal`` is empty for one that was taken."""

    profile: str
    plugin: str
    step: Step
    refusal: str = ""


@dataclass(slots=True)
class CycleReport:
    """What one cycle did, or would do."""

    snapshot: Snapshot
    outcomes: list[Outcome] = field(default_factory=list)
    evicted: dict[str, str] = field(default_factory=dict)
    """uid -> namespace/name."""
    errors: list[str] = field(default_factory=list)

    @property
    def refused(self) -> Sequence[Outcome]:
        """Evictions that were refused."""
        return [each for each in self.outcomes if each.refusal and isinstance(each.step, Eviction)]


class Cycle:
    """``take_snapshot`` gives all ready nodes; ``find_pod`` the pod of a key as it is now; ``make_limiter`` a limiter
    that has counted nothing."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        make_limiter: Callable[[], EvictionLimiter],
        take_snapshot: Callable[[], Snapshot],
        find_pod: Callable[[str], Pod | None],
        executor: Rehearsal,
    ) -> None:
        self._profiles = profiles
        self._make_limiter = make_limiter
        self._take_snapshot = take_snapshot
        self._find_pod = find_pod
        self._executor = executor

    def rehearsed(self) -> Cycle:
        """One that carries nothing out, and after which the next cycle is as it would have been."""
        profiles = [profile.rehearsed() for profile in self._profiles]
        return Cycle(profiles, self._make_limiter, self._take_snapshot, self._find_pod, Rehearsal())

    @property
    def profiles(self) -> Sequence[Profile]:
        return self._profiles

    async def run(self) -> CycleReport:
        """Run deschedule plugins of all profiles, and then their balance plugins. A plugin that fails ends neither the
        others nor the program."""
        snapshot = self._take_snapshot()
        report = CycleReport(snapshot)
        if len(snapshot.nodes) <= 1:
            report.errors.append(TOO_SMALL)
            self._executor.report(TOO_SMALL)
            return report
        limiter = self._make_limiter()
        for profile in self._profiles:
            for plugin in profile.plugins.values():
                await self._guarded(plugin, report, plugin.prepare(snapshot))
        for profile in self._profiles:
            for deschedule in profile.deschedule:
                begin = partial(deschedule.deschedule, of_profile(snapshot, profile))
                await self._guarded(deschedule, report, _Run(self, profile, deschedule, limiter, report).run(begin))
        if report.evicted:
            snapshot = without(snapshot, report.evicted)
        for profile in self._profiles:
            for balance in profile.balance:
                begin = partial(balance.balance, of_profile(snapshot, profile))
                await self._guarded(balance, report, _Run(self, profile, balance, limiter, report).run(begin))
        return report

    async def _guarded(self, plugin: Plugin, report: CycleReport, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            kind = "" if isinstance(error, KubeError) else f"{type(error).__name__}: "
            report.errors.append(f"{plugin.name}: {kind}{error}")
            self._executor.report(report.errors[-1], error)


class _Run:
    """One plugin of a profile in one cycle."""

    def __init__(
        self, cycle: Cycle, profile: Profile, plugin: Plugin, limiter: EvictionLimiter, report: CycleReport
    ) -> None:
        self._find_pod, self._executor = cycle._find_pod, cycle._executor
        self._profile = profile
        self._plugin = plugin.name
        self._limiter = limiter
        self._report = report

    async def run(self, begin: Callable[[], Plan]) -> None:
        plan = begin()
        try:
            step = next(plan)
            while True:
                refusal = await self._take(step)
                self._report.outcomes.append(Outcome(self._profile.name, self._plugin, step, refusal))
                self._executor.note(self._profile.name, self._plugin, step, refusal)
                step = plan.send(not refusal)
        except StopIteration:
            return
        finally:
            plan.close()

    async def _take(self, step: Step) -> str:
        """Why the step is not taken; "" when it is."""
        match step:
            case Remark() | HotNode():
                await asyncio.sleep(0)
                return ""
            case Cordon() | DeletionCost():
                return await self._executor.change(step)
            case Eviction():
                result = await self._evict(step)
                return "" if result.evicted else result.message or "it was not evicted"

    async def _evict(self, step: Eviction) -> EvictionResult:
        """The pod as it is now, if the plan still holds for it."""
        if step.pod.metadata.uid in self._report.evicted:
            return EvictionResult(False, "it has been evicted in this cycle")
        pod = self._find_pod(step.pod.metadata.key)
        if pod is None or pod.metadata.uid != step.pod.metadata.uid:
            return EvictionResult(False, "the pod is gone")
        limits = [] if step.dry_run else [self._limiter.refusals]
        may_leave = EvictionPipeline(partial(_what_changed, step.pod), self._profile.evictor.filter, *limits)
        if refusals := may_leave.evaluate(pod):
            return EvictionResult(False, "; ".join(refusals))
        if step.dry_run:
            return EvictionResult(True)
        result = await self._executor.evict(self._profile, self._plugin, pod, step)
        if result.evicted:
            self._limiter.done(pod)
            self._report.evicted[pod.metadata.uid] = pod.metadata.key
        return result


def is_ready(node: Node) -> bool:
    """A node without the condition is ready; one that is cordoned is, too."""
    return all(condition.type != "Ready" or condition.status == "True" for condition in node.status.conditions)


def of_profile(snapshot: Snapshot, profile: Profile) -> Snapshot:
    """With the nodes alone that the profile looks at."""
    if profile.selector is None:
        return snapshot
    return replace(snapshot, nodes=[node for node in snapshot.nodes if profile.looks_at(node)])


def without(snapshot: Snapshot, evicted: Container[str]) -> Snapshot:
    """What has been evicted is not there to be balanced."""
    return replace(
        snapshot,
        pods_by_node={
            node: [pod for pod in pods if pod.metadata.uid not in evicted]
            for node, pods in snapshot.pods_by_node.items()
        },
    )


def _what_changed(planned: Pod, live: Pod) -> Refusals:
    """Why a step that was planned for a pod has lost its ground."""
    if live.spec.node_name != planned.spec.node_name:
        return [f"the pod is on node {live.spec.node_name} now"]
    if live.metadata.deletion_timestamp is not None:
        return ["the pod is terminating"]
    return NOTHING_REFUSED
