"""What becomes of the steps of a cycle: they are carried out, or said in the log alone, or neither.

All three plan in the same way, and answer plugins in the same way; only the first writes.
"""

from __future__ import annotations

import logging
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod
from koordinator.base.logs import fields, verbosity
from koordinator.descheduler.framework import Cordon, DeletionCost, Eviction, EvictionResult, HotNode, Remark, Step
from koordinator.descheduler.profiles import Profile
from koordinator.kube.errors import KubeError
from koordinator.kube.interface import Client, PatchType

logger = logging.getLogger(__name__)

_DRY_RUN: Final = " in dry run mode"


class Rehearsal:
    """Carries nothing out, and says nothing."""

    async def evict(self, profile: Profile, plugin: str, pod: Pod, step: Eviction) -> EvictionResult:
        """``pod`` is the pod of the step as it is now."""
        return profile.evictor.plugin.plan_eviction(pod)

    async def change(self, step: Cordon | DeletionCost) -> str:
        """Why the step could not be taken; "" when it was."""
        return ""

    def note(self, profile: str, plugin: str, step: Step, refusal: str) -> None:
        """A step has been taken, or refused."""

    def report(self, text: str, error: Exception | None = None) -> None:
        """Something went wrong."""


class DryRun(Rehearsal):
    """Carries nothing out, and says what it would do."""

    suffix = _DRY_RUN

    def note(self, profile: str, plugin: str, step: Step, refusal: str) -> None:
        match step:
            case Remark() | HotNode():
                if text := str(step):
                    logger.log(verbosity(2), "%s", text, extra=fields(profile=profile))
            case Eviction(pod, reason):
                about = fields(pod=pod.metadata.key, node=pod.spec.node_name, strategy=plugin, reason=reason)
                if refusal:
                    logger.info("Pod is not evicted: %s", refusal, extra=about)
                else:
                    logger.info("Evicted pod%s", _DRY_RUN if step.dry_run else self.suffix, extra=about)
            case Cordon(node, unschedulable, reason):
                verb = "Cordoning" if unschedulable else "Uncordoning"
                logger.info("%s node%s", verb, self.suffix, extra=fields(node=node, reason=reason, strategy=plugin))
            case DeletionCost(pod, cost, reason) if self.suffix:
                about = fields(pod=pod.metadata.key, cost=cost, strategy=plugin, reason=reason)
                logger.info("Set deletion cost%s", self.suffix, extra=about)

    def report(self, text: str, error: Exception | None = None) -> None:
        unforeseen = error is not None and not isinstance(error, KubeError)
        logger.error("Error descheduling pods: %s", text, exc_info=error if unforeseen else None)


class Live(DryRun):
    """Carries out what plugins propose."""

    suffix = ""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def evict(self, profile: Profile, plugin: str, pod: Pod, step: Eviction) -> EvictionResult:
        return await profile.evictor.plugin.evict(pod, plugin, step.reason, step.options)

    async def change(self, step: Cordon | DeletionCost) -> str:
        try:
            if isinstance(step, Cordon):
                body: object = {"spec": {"unschedulable": step.unschedulable or None}}
                await self._client.patch(NODES, step.node, body, PatchType.MERGE)
            else:
                metadata = step.pod.metadata
                noted = {annotation_keys.POD_DELETION_COST: str(step.cost)}
                body = {"metadata": {"uid": metadata.uid, "annotations": noted}}
                await self._client.patch(PODS, metadata.name, body, PatchType.MERGE, metadata.namespace)
        except KubeError as error:
            what = f"node {step.node}" if isinstance(step, Cordon) else f"pod {step.pod.metadata.key}"
            logger.warning("failed to patch %s: %s", what, error)
            return str(error)
        return ""
