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
from koordinator.cluster.controllers.endpoints.controller import EndpointsController
from koordinator.cluster.controllers.endpoints.slice_controller import EndpointSliceController
from koordinator.cluster.controllers.job.controller import JobController
from koordinator.cluster.controllers.job.leftovers import FinishedJobController, OrphanedPodController
from koordinator.cluster.controllers.replica_set.controller import (
    ReplicaSetController,
    ReplicationControllerController,
)
from koordinator.cluster.controllers.stateful_set.controller import StatefulSetController

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
}
