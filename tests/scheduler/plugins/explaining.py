"""What plugins say that nodes lack, as tests compare it."""

from __future__ import annotations

from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.judgement import judge


def lacks_of(profile: Profile, view: ClusterView, pod: PodInfo) -> dict[str, list[str]]:
    """By node, in words."""
    judgement = judge(profile, view, pod)
    names = [view.columns.names[row] for row in judgement.rows.tolist()]
    return {
        name: [lack.text for objection in judgement.objections(index) for lack in objection.lacks]
        for index, name in enumerate(names)
    }
