"""The descheduler's cycles: when they are so late that its health check says so."""

from __future__ import annotations

import asyncio
from random import Random

from koordinator.api.kinds import NODES
from koordinator.base.clock import ManualClock
from koordinator.base.program import Process
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.cycle import CycleReport
from koordinator.descheduler.default_evictor import DefaultEvictor
from koordinator.descheduler.plugins.table import DECIDING
from koordinator.descheduler.program import Descheduler
from koordinator.kube.events import EventBroadcaster
from tests.in_memory_api import InMemoryApi

EVICTOR = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
DOCUMENT = {
    "apiVersion": VERSION,
    "kind": KIND,
    "deschedulingInterval": "60s",
    "profiles": [{"name": "p", "plugins": {"evict": EVICTOR, "filter": EVICTOR}}],
}


class Hanging(Descheduler):
    """Whose second cycle does not end."""

    async def run_cycle(self) -> CycleReport:
        if self.cycles:
            await asyncio.Event().wait()
        return await super().run_cycle()


def test_a_cycle_that_does_not_end_is_said() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        api, stop = InMemoryApi(clock), asyncio.Event()
        api.put(NODES, {"metadata": {"name": "n"}})
        configuration = resolve(DOCUMENT, "", Catalogue({**DECIDING, "DefaultEvictor": DefaultEvictor}, lambda: ()))
        client, process = api.client(), Process(clock=clock, stop=stop)
        descheduler = Hanging(
            client,
            EventBroadcaster(client, program="koord-descheduler", clock=clock, random=Random(1)),
            configuration,
            process,
        )
        async with asyncio.timeout(20), descheduler.informers.started(20):
            work = asyncio.create_task(descheduler.deschedule(stop))
            await clock.advance(120)
            assert (descheduler.cycles, descheduler.check_cycles()) == (1, "")
            await clock.advance(5 * 660)
            assert descheduler.check_cycles() == "no descheduling cycle has ended for 3420s"
            stop.set()
            await clock.advance(1)
            await work
            assert descheduler.check_cycles() == ""

    asyncio.run(scenario())
