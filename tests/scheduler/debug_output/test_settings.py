"""Which of the debug flags make the scheduler do more."""

from __future__ import annotations

import pytest

from koordinator.scheduler.debug_output import DebugOutput, DebugSettings
from koordinator.scheduler.engine.pod_info import PodInfo
from tests.scheduler.fakes import make_pod
from tests.scheduler.running_scheduler import RunningScheduler, simulate, two_nodes


def test_only_what_is_logged_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []

    def decided(output: DebugOutput, pod: PodInfo, *of_decision: object) -> None:
        logged.append(pod.pod.metadata.name)

    monkeypatch.setattr(DebugOutput, "decided", decided)

    async def story(fixture: RunningScheduler) -> None:
        for name, settings in {
            "off": DebugSettings(),
            "negative": DebugSettings(scores=-1),
            "blocking": DebugSettings(blocking=True),
            "scores": DebugSettings(scores=1),
            "filters": DebugSettings(filters=True),
            "diagnosis": DebugSettings(diagnosis=True),
        }.items():
            fixture.scheduler.debug.settings = settings
            fixture.api.store(make_pod(name))
            await fixture.until_idle()

    simulate(story, two_nodes)
    assert logged == ["scores", "filters", "diagnosis"]
