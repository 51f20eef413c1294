"""All workload controllers, by the names that ``--controllers`` of kube-controller-manager gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.cluster.controllers.context import ControllerMaker
from koordinator.cluster.controllers.deployment.controller import DeploymentController
from koordinator.cluster.controllers.replica_set.controller import ReplicaSetController

CONTROLLERS: Final[Mapping[str, ControllerMaker]] = {
    DeploymentController.name: DeploymentController,
    ReplicaSetController.name: ReplicaSetController,
}
