"""In how many modules of the scheduler a pod runs code on its way to a node, and in how many of its plugin a
Reservation does, and an owner on its way into it: as many as a reader has to open to follow them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from benchmarks import pod_mixes
from koordinator.api.kinds import RESERVATIONS
from tests.costs.scheduler_costs import Shape, place, running
from tests.costs.scripted_api import Document, ScriptedApi
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.reservation.test_status_writes import owner, shared
from tests.scheduler.plugins.reservation.test_waking import profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

_SCHEDULER: Final = "koordinator.scheduler."
_PLUGINS: Final = "plugins."
_RESERVATION: Final = "plugins.reservation."
_OF_A_POD: Final = {"one of many": (pod_mixes.equal, 10), "the first of its kind": (pod_mixes.different, 20)}
_OF_A_RESERVATION: Final = 11


@pytest.mark.parametrize("case", _OF_A_POD)
def test_a_pod_crosses_few_modules(case: str) -> None:
    """From its event to the request that binds it, without the plugins, which are those of ``koord manifests``."""
    pods, bound = _OF_A_POD[case]
    modules = {name for name in asyncio.run(_way_to_the_request(pods)) if not name.startswith(_PLUGINS)}
    _check(modules, bound)


async def _way_to_the_request(pods: Callable[[int], list[Document]]) -> set[str]:
    shape = Shape(pods, nodes=3)
    *first, last = pods(6)
    async with running(shape) as api:
        # One after the other: what the first of all is asked is none of the last one's way.
        for pod in first:
            await place(api, [pod], shape)
        with _recording(ScriptedApi.create.__code__) as modules:
            await place(api, [last], shape)
    return modules


def test_a_reservation_crosses_few_modules() -> None:
    """From its event to its binding, its status, and that of its first owner."""
    modules: set[str] = set()

    async def story(fixture: RunningScheduler) -> None:
        with _recording() as found:
            fixture.api.store(shared("r"), RESERVATIONS)
            await fixture.until_idle(2)
            fixture.api.store(owner("r"))
            await fixture.until_idle(2)
        modules.update(name for name in found if name.startswith(_RESERVATION))
        status = fixture.api.objects("reservations")["r"].status
        assert (status.node_name, [each.name for each in status.current_owners]) == ("a", ["r-0"])

    api = SchedulerApi()
    api.store(make_node("a", cpu="4", memory="8Gi"))
    simulate(story, lambda: api, profile)
    _check(modules, _OF_A_RESERVATION)


def _check(modules: set[str], bound: int) -> None:
    assert len(modules) <= bound, f"{len(modules)} instead of {bound}:\n" + "\n".join(sorted(modules))


@contextmanager
def _recording(end: CodeType | None = None) -> Iterator[set[str]]:
    """The modules of the scheduler in which functions are called, until the function ``end`` is."""
    modules: set[str] = set()

    def record(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code is end:
            sys.setprofile(None)
        module = str(frame.f_globals.get("__name__", "")) if event == "call" else ""
        if module.startswith(_SCHEDULER):
            modules.add(module.removeprefix(_SCHEDULER))

    sys.setprofile(record)
    try:
        yield modules
    finally:
        sys.setprofile(None)
