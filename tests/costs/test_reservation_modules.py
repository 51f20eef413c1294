"""In how many modules of its plugin a Reservation runs code on its way to a node, and an owner on its way into it: as
many as a reader has to open to follow it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from koordinator.api.kinds import RESERVATIONS
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.reservation.test_status_writes import owner, shared
from tests.scheduler.plugins.reservation.test_waking import profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

_PLUGIN: Final = "koordinator.scheduler.plugins.reservation."
_BOUND: Final = 11


def test_a_reservation_crosses_few_modules() -> None:
    """From its event to its binding, its status, and that of its first owner."""
    modules: set[str] = set()

    async def story(fixture: RunningScheduler) -> None:
        with _recording(modules):
            fixture.api.store(shared("r"), RESERVATIONS)
            await fixture.until_idle(2)
            fixture.api.store(owner("r"))
            await fixture.until_idle(2)
        status = fixture.api.objects("reservations")["r"].status
        assert (status.node_name, [each.name for each in status.current_owners]) == ("a", ["r-0"])

    api = SchedulerApi()
    api.store(make_node("a", cpu="4", memory="8Gi"))
    simulate(story, lambda: api, profile)
    assert len(modules) <= _BOUND, f"{len(modules)} instead of {_BOUND}:\n" + "\n".join(sorted(modules))


@contextmanager
def _recording(modules: set[str]) -> Iterator[None]:
    def profile(frame: FrameType, event: str, argument: Any) -> None:
        module = str(frame.f_globals.get("__name__", "")) if event == "call" else ""
        if module.startswith(_PLUGIN):
            modules.add(module.removeprefix(_PLUGIN))

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
