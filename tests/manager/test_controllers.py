"""Which controllers run."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.reconciler import Controller, run_controllers
from koordinator.manager.controller_table import BUILT
from koordinator.manager.controllers import ControllerContext, make_controllers
from koordinator.manager.options import CONTROLLERS, Options
from tests.in_memory_api import InMemoryApi


class Recording:
    """A controller that says when it works."""

    def __init__(self, context: ControllerContext) -> None:
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


def context(*names: str) -> ControllerContext:
    client = InMemoryApi().client()
    return ControllerContext(
        client=client,
        informers=InformerSet(client),
        events=cast("EventBroadcaster", None),
        options=Options(controllers=names),
        metrics=Metrics(),
        clock=ManualClock(),
        random=Random(1),
    )


def test_those_that_exist_are_those_that_can_be_named() -> None:
    assert set(BUILT) == set(CONTROLLERS)


def test_those_that_are_switched_on_are_made() -> None:
    made = make_controllers(context("*", "-nodemetric"), dict.fromkeys(CONTROLLERS, Recording))
    assert list(made) == ["colocationprofile", "noderesource", "nodeslo", "quotaprofile", "recommender"]


def test_they_work_side_by_side_until_cancelled() -> None:
    async def scenario() -> None:
        requested = context("*")
        both = {"a": Recording(requested), "b": Recording(requested)}
        running = asyncio.create_task(run_controllers(requested.informers, cast("dict[str, Controller]", both)))
        async with asyncio.timeout(10):
            for each in both.values():
                await each.started.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert all(each.stopped.is_set() for each in both.values())

    asyncio.run(scenario())


def test_one_whose_feature_gate_is_off_is_not_made() -> None:
    recording = dict.fromkeys(CONTROLLERS, Recording)
    assert list(make_controllers(context("*"), recording, {"nodeslo": "ColocationProfileController"})) == [
        "colocationprofile",
        "nodemetric",
        "noderesource",
        "quotaprofile",
        "recommender",
    ]
