"""All workload controllers, by the names that ``--controllers`` of kube-controller-manager gives them,
and by one of its own where it gives none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.cluster.controllers.autoscaler.controller import HorizontalPodAutoscalerController
from koordinator.cluster.controllers.context import ControllerMaker
from koordinator.cluster.controllers.cron_job.controller import CronJobController
from koordinator.cluster.controllers.daemon_set.controller import DaemonSetController
from koordinator.cluster.controllers.deployment.controller import DeploymentController
from koordinator.cluster.controllers.each_namespace import DefaultAccountController, RootAuthorityController
from koordinator.cluster.controllers.endpoints.controller import EndpointsController
from koordinator.cluster.controllers.endpoints.mirror_controller import EndpointSliceMirroringController
from koordinator.cluster.controllers.endpoints.slice_controller import EndpointSliceController
from koordinator.cluster.controllers.job.controller import JobController
from koordinator.cluster.controllers.job.leftovers import FinishedJobController, OrphanedPodController
from koordinator.cluster.controllers.node_lifecycle.controller import NodeLifecycleController
from koordinator.cluster.controllers.persistent_volume.controller import VolumeBinderController
from koordinator.cluster.controllers.persistent_volume.ephemeral import EphemeralVolumeController
from koordinator.cluster.controllers.persistent_volume.protection import (
    ClaimProtectionController,
    VolumeProtectionController,
)
from koordinator.cluster.controllers.persistent_volume.provisioner import SimulatedProvisionerController
from koordinator.cluster.controllers.pod_garbage.controller import PodGarbageController
from koordinator.cluster.controllers.replica_set.controller import (
    ReplicaSetController,
    ReplicationControllerController,
)
from koordinator.cluster.controllers.stateful_set.controller import StatefulSetController
from koordinator.cluster.controllers.taint_eviction.controller import TaintEvictionController

CONTROLLERS: Final[Mapping[str, ControllerMaker]] = {
    DeploymentController.name: DeploymentController,
    ReplicaSetController.name: ReplicaSetController,
    ReplicationControllerController.name: ReplicationControllerController,
    DaemonSetController.name: DaemonSetController,
    StatefulSetController.name: StatefulSetController,
    JobController.name: JobController,
    CronJobController.name: CronJobController,
    OrphanedPodController.name: OrphanedPodController,
    FinishedJobController.name: FinishedJobController,
    HorizontalPodAutoscalerController.name: HorizontalPodAutoscalerController,
    EndpointsController.name: EndpointsController,
    EndpointSliceController.name: EndpointSliceController,
    EndpointSliceMirroringController.name: EndpointSliceMirroringController,
    NodeLifecycleController.name: NodeLifecycleController,
    TaintEvictionController.name: TaintEvictionController,
    PodGarbageController.name: PodGarbageController,
    VolumeBinderController.name: VolumeBinderController,
    ClaimProtectionController.name: ClaimProtectionController,
    VolumeProtectionController.name: VolumeProtectionController,
    EphemeralVolumeController.name: EphemeralVolumeController,
    SimulatedProvisionerController.name: SimulatedProvisionerController,
    DefaultAccountController.name: DefaultAccountController,
    RootAuthorityController.name: RootAuthorityController,
}
