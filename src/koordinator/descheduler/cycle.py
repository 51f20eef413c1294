"""One pass over the cluster: a snapshot, the plugins of all profiles on it, and each step that they propose, held
against the live objects before it is taken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODES, PODS
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.base.logs import fields, verbosity
from koordinator.descheduler.framework import (
    Cordon,
    DeletionCost,
    Eviction,
    EvictionResult,
    Plan,
    Plugin,
    Remark,
    Snapshot,
    Step,
)
from koordinator.descheduler.runtime import EvictionLimiter, Profile
from koordinator.kube.errors import KubeError
from koordinator.kube.interface import Client, PatchType

logger = logging.getLogger(__name__)

TOO_SMALL: Final = "the cluster size is 0 or 1 meaning eviction causes service disruption or degradation"


@dataclass(slots=True)
class CycleReport:
    """What one cycle did, for the log and for tests."""

    evicted: dict[str, str] = field(default_factory=dict)
    """uid -> namespace/name."""
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Cycle:
    """``take_snapshot`` gives all ready nodes; ``find_pod`` the pod of a key as it is now."""

    def __init__(
        self,
        client: Client,
        profiles: Sequence[Profile],
        limiter: EvictionLimiter,
        take_snapshot: Callable[[], Snapshot],
        find_pod: Callable[[str], Pod | None],
        *,
        dry_run: bool,
    ) -> None:
        self._client = client
        self._profiles = profiles
        self._limiter = limiter
        self._take_snapshot = take_snapshot
        self._find_pod = find_pod
        self._dry_run = dry_run

    async def run(self) -> CycleReport:
        """Run deschedule plugins of all profiles, and then their balance plugins. A plugin that fails ends neither the
        others nor the program."""
        report = CycleReport()
        snapshot = self._take_snapshot()
        if len(snapshot.nodes) <= 1:
            report.errors.append(TOO_SMALL)
            logger.error("Error descheduling pods: %s", TOO_SMALL)
            return report
        self._limiter.reset()
        for profile in self._profiles:
            for plugin in profile.plugins.values():
                await self._guarded(plugin, report, plugin.prepare(snapshot))
        for profile in self._profiles:
            for deschedule in profile.deschedule:
                begin = partial(deschedule.deschedule, of_profile(snapshot, profile))
                await self._guarded(deschedule, report, self._run(profile, deschedule, begin, report))
        if report.evicted:
            snapshot = without(snapshot, report.evicted)
        for profile in self._profiles:
            for balance in profile.balance:
                begin = partial(balance.balance, of_profile(snapshot, profile))
                await self._guarded(balance, report, self._run(profile, balance, begin, report))
        return report

    async def _guarded(self, plugin: Plugin, report: CycleReport, work: Awaitable[None]) -> None:
        try:
            await work
        except KubeError as error:
            report.errors.append(f"{plugin.name}: {error}")
            logger.error("Error descheduling pods: %s: %s", plugin.name, error)  # noqa: TRY400
        except Exception as error:
            report.errors.append(f"{plugin.name}: {error}")
            logger.exception("Error descheduling pods: %s", plugin.name)

    async def _run(self, profile: Profile, plugin: Plugin, begin: Callable[[], Plan], report: CycleReport) -> None:
        plan = begin()
        try:
            step = next(plan)
            while True:
                step = plan.send(await self._take(profile, plugin, step, report))
        except StopIteration:
            return
        finally:
            plan.close()

    async def _take(self, profile: Profile, plugin: Plugin, step: Step, report: CycleReport) -> bool:
        match step:
            case Remark(text):
                if text:
                    logger.log(verbosity(2), "%s", text, extra=fields(profile=profile.name))
                await asyncio.sleep(0)
                return True
            case Eviction():
                return await self._evict(profile, plugin, step, report)
            case Cordon(node, unschedulable, reason):
                logger.info(
                    "%s node%s",
                    "Cordoning" if unschedulable else "Uncordoning",
                    " in dry run mode" if self._dry_run else "",
                    extra=fields(node=node, reason=reason, strategy=plugin.name),
                )
                body = {"spec": {"unschedulable": unschedulable or None}}
                return self._dry_run or await self._patch_node(node, body)
            case DeletionCost(pod, cost, reason):
                return await self._set_cost(plugin, pod, cost, reason)

    async def _evict(self, profile: Profile, plugin: Plugin, step: Eviction, report: CycleReport) -> bool:
        key = step.pod.metadata.key
        about = fields(pod=key, node=step.pod.spec.node_name, strategy=plugin.name, reason=step.reason)
        result = await self._try_to_evict(profile, plugin, step, report)
        if result.evicted:
            logger.info("Evicted pod%s", " in dry run mode" if step.dry_run else "", extra=about)
            return True
        report.refused.append(f"{key}: {result.message}")
        logger.info("Pod is not evicted: %s", result.message, extra=about)
        return False

    async def _try_to_evict(
        self, profile: Profile, plugin: Plugin, step: Eviction, report: CycleReport
    ) -> EvictionResult:
        """The pod as it is now, if the plan still holds for it."""
        pod = self._find_pod(step.pod.metadata.key)
        if pod is None or pod.metadata.uid != step.pod.metadata.uid:
            return EvictionResult(False, "the pod is gone")
        refusal = _what_changed(step.pod, pod) or "; ".join(profile.evictor.filter(pod))
        if refusal:
            return EvictionResult(False, refusal)
        if pod.metadata.uid in report.evicted:
            return EvictionResult(False, "it has been evicted in this cycle")
        if step.dry_run:
            return EvictionResult(True)
        result = await profile.evictor.evict(pod, plugin.name, step.reason, step.options)
        if result.evicted:
            report.evicted[pod.metadata.uid] = pod.metadata.key
        return result

    async def _patch_node(self, node: str, body: object) -> bool:
        try:
            await self._client.patch(NODES, node, body, PatchType.MERGE)
        except KubeError as error:
            logger.warning("node %s cannot be patched: %s", node, error)
            return False
        return True

    async def _set_cost(self, plugin: Plugin, pod: Pod, cost: int, reason: str) -> bool:
        about = fields(pod=pod.metadata.key, cost=cost, strategy=plugin.name, reason=reason)
        if self._dry_run:
            logger.info("Set deletion cost in dry run mode", extra=about)
            return True
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {annotation_keys.POD_DELETION_COST: str(cost)}}}
        try:
            await self._client.patch(PODS, pod.metadata.name, body, PatchType.MERGE, pod.metadata.namespace)
        except KubeError as error:
            logger.warning("failed to patch pod %s: %s", pod.metadata.key, error)
            return False
        return True


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


def _what_changed(planned: Pod, live: Pod) -> str:
    """Why a step that was planned for a pod has lost its ground; "" when it has not."""
    if live.spec.node_name != planned.spec.node_name:
        return f"the pod is on node {live.spec.node_name} now"
    if live.metadata.deletion_timestamp is not None:
        return "the pod is terminating"
    return ""
