"""Each object that an API server accepts and that says what cannot be, beside healthy pods and a healthy node."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.kinds import PODS
from koordinator.scheduler.configuration import load_configuration
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.profiles import build_profiles
from tests.real_world.broken_objects import BROKEN_NODE, BROKEN_OBJECTS, BrokenObject
from tests.scheduler.fakes import make_node
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

_CHART: Final = Path(__file__).parents[1] / "configuration/chart_profile.yaml"
_GOOD: Final = "good"


def chart_profile(view: ClusterView) -> Profile:
    return build_profiles(load_configuration(_CHART), BUILT_IN, view)[0]


def running_beside(api: SchedulerApi) -> RunningScheduler:
    return RunningScheduler(api, chart_profile, lambda pod, view: make_pod_info(pod, view.columns.resources))


def confined(name: str, node: str) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}],
        },
    }


@pytest.mark.parametrize("broken", BROKEN_OBJECTS, ids=lambda broken: broken.name)
def test_healthy_pods_are_placed(broken: BrokenObject, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    api = SchedulerApi()
    for name in (_GOOD, BROKEN_NODE):
        api.store(make_node(name, cpu="8", memory="32Gi", labels={"kubernetes.io/hostname": name}))

    async def story() -> RunningScheduler:
        fixture = running_beside(api)
        async with fixture.running():
            api.put(broken.kind, broken.copy())
            if broken.kind is PODS:
                bound = broken.copy()
                bound["metadata"]["name"] = "bound"
                bound["spec"]["nodeName"] = BROKEN_NODE
                api.put(PODS, bound)
            await fixture.until_idle(2)
            for name, node in (("confined", _GOOD), ("free", "")):
                api.put(PODS, confined(name, node))
            await fixture.until_idle(2)
        return fixture

    asyncio.run(story())
    assert {"confined", "free"} <= set(api.placed())
    assert api.placed()["confined"] == _GOOD
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
