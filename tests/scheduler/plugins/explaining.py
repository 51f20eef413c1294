"""What plugins say that nodes lack, as tests compare it."""

from __future__ import annotations

from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.sources import filter_nodes


def lacks_of(profile: Profile, view: ClusterView, pod: PodInfo) -> dict[str, list[str]]:
    """By node, in words."""
    filter_results = filter_nodes(profile, view, pod)
    names = [view.columns.names[row] for row in filter_results.rows.tolist()]
    return {
        name: [lack.text for objection in filter_results.objections(index) for lack in objection.lacks]
        for index, name in enumerate(names)
    }
