"""The Deployment controller: it reads what a Deployment owns, has the next step planned, and writes it."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.kinds import PODS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.adoption import Adoption
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.deployment.plan import Plan, Situation, plan, replica_set_patch
from koordinator.cluster.controllers.deployment.revisions import REVISION, has_template_of
from koordinator.cluster.controllers.deployment.sizes import RECREATE
from koordinator.cluster.controllers.deployment.status import (
    CREATE_FAILED,
    has_deadline,
    progressing,
    with_progress,
)
from koordinator.cluster.controllers.ownership import (
    CONTROLLER_INDEX,
    OwnerEvents,
    by_controller,
    candidates,
    claim,
    usable_selector,
)
from koordinator.cluster.controllers.pod_control import is_namespace_terminating
from koordinator.cluster.controllers.status_control import write_status
from koordinator.cluster.controllers.workloads import (
    DEPLOYMENTS,
    REPLICA_SETS,
    Deployment,
    DeploymentStatus,
    ReplicaSet,
)
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.model.label_selector import CompiledSelector

logger = logging.getLogger(__name__)

_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 1.0
"""When an object is looked at again that has changed since the cache was read, if no event says so before."""


class DeploymentController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "deployment-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.events.recorder(self.name)
        self._deployments = context.informers.informer(DEPLOYMENTS)
        self._replica_sets = context.informers.informer(REPLICA_SETS, indexes={CONTROLLER_INDEX: by_controller})
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        self._adoption = Adoption(context.client, DEPLOYMENTS, REPLICA_SETS)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._deployments.list()],
            workers=_WORKERS,
        )
        self._add_handlers()

    def _add_handlers(self) -> None:
        children: OwnerEvents[ReplicaSet, Deployment] = OwnerEvents(
            DEPLOYMENTS, self._deployments, _selector, self._reconciler.add
        )
        children.follow(self._replica_sets, self.name)
        self._pods.add_handlers(name=self.name, on_delete=self._pod_is_gone)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _pod_is_gone(self, pod: Pod) -> None:
        """A Deployment that is recreated waits for the last of its old pods."""
        reference, namespace = controller_of(pod.metadata), pod.metadata.namespace
        replica_set = self._replica_sets.get(f"{namespace}/{reference.name}") if reference is not None else None
        owner = controller_of(replica_set.metadata) if replica_set is not None else None
        deployment = self._deployments.get(f"{namespace}/{owner.name}") if owner is not None else None
        if deployment is not None and deployment.spec.strategy.type == RECREATE:
            self._reconciler.add(deployment.metadata.key)

    async def _reconcile(self, key: str) -> float | None:
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        found = claim(deployment, candidates(self._replica_sets, deployment), _selector(deployment))
        replica_sets = await self._adoption.claim(deployment, found)
        occupied = [each.metadata.uid for each in replica_sets if self._has_pods(each)]
        made = plan(Situation(deployment, replica_sets, occupied), self._clock.now())
        try:
            await self._write(deployment, made)
        except ApiStatusError as error:
            if not error.is_conflict:
                raise
            # A ReplicaSet has changed since the cache was read; the event of that comes at any moment.
            return _RECHECK_SECONDS
        return made.again

    def _has_pods(self, replica_set: ReplicaSet) -> bool:
        return any(not is_finished(pod) for pod in self._pods.by_index(CONTROLLER_INDEX, replica_set.metadata.uid))

    async def _write(self, deployment: Deployment, made: Plan) -> None:
        if made.created is not None and not await self._create(deployment, made.created):
            return
        for before, after in made.changed:
            await self._change(deployment, before, after)
        for replica_set in made.deleted:
            await self._delete(replica_set)
        if made.revision:
            await self._annotate(deployment, {REVISION: made.revision})
        await self._write_status(deployment, made.status)

    async def _create(self, deployment: Deployment, replica_set: ReplicaSet) -> bool:
        """Returns whether it is there now. Raises KubeError."""
        metadata = replica_set.metadata
        try:
            created = await self._client.create(REPLICA_SETS, to_document(replica_set), metadata.namespace)
        except ApiStatusError as error:
            if error.is_already_exists:
                return await self._is_ours(deployment, metadata.name)
            if is_namespace_terminating(error):
                return False
            await self._report_failure(deployment, metadata.name, error)
            raise
        if replica_set.wanted > 0:
            self._record_scaling(deployment, created, 0, replica_set.wanted)
        return True

    async def _is_ours(self, deployment: Deployment, name: str) -> bool:
        """Whether the ReplicaSet of this name is the one that was to be created. If it is another one, the next name is
        made with a higher number of collisions."""
        found = await self._client.get(REPLICA_SETS, name, deployment.metadata.namespace)
        owner = controller_of(found.metadata)
        if owner is not None and owner.uid == deployment.metadata.uid and has_template_of(found, deployment):
            return True
        status = deployment.status
        collisions = (status.collision_count or 0) + 1
        logger.info("%s: the name %s is taken; collision %d", deployment.metadata.key, name, collisions)
        await self._write_status(deployment, msgspec.structs.replace(status, collision_count=collisions))
        return False

    async def _report_failure(self, deployment: Deployment, name: str, error: ApiStatusError) -> None:
        note = f'Failed to create new replica set "{name}": {error.message}'
        self._recorder.event(reference_to(DEPLOYMENTS, deployment), "Warning", CREATE_FAILED, CREATE_FAILED, note)
        if has_deadline(deployment):
            failed = progressing("False", CREATE_FAILED, note, self._clock.now())
            await self._write_status(deployment, with_progress(deployment, failed).status)

    async def _change(self, deployment: Deployment, before: ReplicaSet, after: ReplicaSet) -> None:
        body = replica_set_patch(before, after)
        if body is None:
            return
        metadata = before.metadata
        written = await self._client.patch(REPLICA_SETS, metadata.name, body, PatchType.MERGE, metadata.namespace)
        if before.wanted != after.wanted:
            self._record_scaling(deployment, written, before.wanted, after.wanted)

    async def _delete(self, replica_set: ReplicaSet) -> None:
        metadata = replica_set.metadata
        try:
            await self._client.delete(
                REPLICA_SETS,
                metadata.name,
                metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        except ApiStatusError as error:
            if not error.is_not_found:
                raise

    def _record_scaling(self, deployment: Deployment, replica_set: ReplicaSet, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        note = f"Scaled {way} replica set {replica_set.metadata.name} from {before} to {after}"
        regarding, related = reference_to(DEPLOYMENTS, deployment), reference_to(REPLICA_SETS, replica_set)
        self._recorder.event(regarding, "Normal", "ScalingReplicaSet", "ScalingReplicaSet", note, related=related)

    async def _write_status(self, deployment: Deployment, status: DeploymentStatus) -> None:
        await write_status(self._client, DEPLOYMENTS, deployment, deployment.status, status)

    async def _annotate(self, deployment: Deployment, annotations: Document) -> None:
        metadata = deployment.metadata
        body = {"metadata": {"uid": metadata.uid, "annotations": annotations}}
        try:
            await self._client.patch(DEPLOYMENTS, metadata.name, body, PatchType.MERGE, metadata.namespace)
        except ApiStatusError as error:
            # Deleted in the meantime, and perhaps created again, which is another Deployment.
            if not (error.is_not_found or error.is_conflict):
                raise


def _selector(deployment: Deployment) -> CompiledSelector:
    return usable_selector(deployment.spec.selector)
