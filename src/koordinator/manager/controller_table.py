"""All controllers, by the names that ``--controllers`` uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.manager import features
from koordinator.manager.colocation_profile.controller import ColocationProfileController
from koordinator.manager.colocation_profile.profile_review import ProfileReview
from koordinator.manager.controllers import ControllerMaker
from koordinator.manager.node_policy.controller import NodeMetricController, NodeSLOController
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.quota_profile.controller import QuotaProfileController
from koordinator.manager.recommender.controller import RecommenderController

BUILT: Final[Mapping[str, ControllerMaker]] = {
    ColocationProfileController.name: ColocationProfileController,
    NodeMetricController.name: NodeMetricController,
    NodeResourceController.name: NodeResourceController,
    NodeSLOController.name: NodeSLOController,
    QuotaProfileController.name: QuotaProfileController,
    RecommenderController.name: RecommenderController,
}
ALWAYS: Final[Mapping[str, ControllerMaker]] = {ProfileReview.name: ProfileReview}
"""Controllers that the original does not have and no flag names: the leader runs them where they have work to do."""
GATES: Final[Mapping[str, str]] = {
    ColocationProfileController.name: features.COLOCATION_PROFILE_CONTROLLER,
    RecommenderController.name: features.RECOMMENDER,
}
"""The feature gates of controllers that have one."""
