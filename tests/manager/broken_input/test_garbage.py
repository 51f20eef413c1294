"""Whatever stands in any field of what the manager reads: no controller fails, and all else is seen to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.manager.broken_input.bench import ManagerBench
from tests.manager.broken_input.documents import BAD, CONFIGURATIONS, DOCUMENTS
from tests.real_world.garbage import FEW, TEXT, garbage_of


class Loud(logging.Handler):
    """Keeps what was logged as a fault of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


@contextmanager
def no_fault(bench: ManagerBench) -> Iterator[None]:
    """Nothing was logged as a fault of ours, and no handler of an informer raised."""
    loud = Loud()
    logging.getLogger().addHandler(loud)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(loud)
    assert loud.records == []
    assert all(informer.handler_errors == 0 for informer in bench.informers)


@pytest.mark.parametrize("name", DOCUMENTS)
@FEW
@given(data=st.data())
def test_garbage_in_an_object_disturbs_no_other_and_is_forgotten_when_corrected(name: str, data: st.DataObject) -> None:
    kind, document = DOCUMENTS[name]
    garbage = data.draw(garbage_of(document))

    async def scenario() -> None:
        bench = ManagerBench()
        bench.configure()
        bench.add_node("good")
        bench.report("good", "40")
        for other, each in DOCUMENTS.values():
            bench.cluster.put(other, garbage if each is document else each)
        with no_fault(bench):
            async with bench.working():
                assert bench.offered("good") == 25_000
                bench.cluster.put(kind, document)
                await bench.until_idle()
                bench.cluster.put(kind, garbage)
                await bench.clock.advance(60)
                bench.report("good", "60")
                await bench.until_idle()
                assert bench.offered("good") == 5_000
                bench.cluster.put(kind, document)
                for cpu in ("51", "52", "53"):
                    # A node whose readings made no sense is trusted again after five minutes.
                    await bench.clock.advance(160)
                    bench.report(BAD, cpu)
                    await bench.until_idle()
                await bench.clock.advance(60)
                bench.report(BAD, "30")
                await bench.until_offered(BAD, 34_000)

    asyncio.run(scenario())


@pytest.mark.parametrize("key", CONFIGURATIONS)
@FEW
@given(data=st.data())
def test_garbage_in_the_slo_configuration_stops_nothing_for_longer_than_it_is_there(
    key: str, data: st.DataObject
) -> None:
    document = CONFIGURATIONS[key]
    garbage = data.draw(garbage_of(document).map(json.dumps) | TEXT)

    async def scenario() -> None:
        bench = ManagerBench()
        bench.configure(CONFIGURATIONS | {key: garbage})
        for kind, each in DOCUMENTS.values():
            bench.cluster.put(kind, each)
        with no_fault(bench):
            async with bench.working():
                bench.configure(CONFIGURATIONS)
                await bench.clock.advance(60)
                bench.report(BAD, "20")
                await bench.until_offered(BAD, 44_000)
                bench.configure(CONFIGURATIONS | {key: garbage})
                await bench.clock.advance(60)
                bench.report(BAD, "40")
                await bench.until_idle()
                bench.configure(CONFIGURATIONS)
                await bench.clock.advance(60)
                bench.report(BAD, "30")
                await bench.until_offered(BAD, 34_000)

    asyncio.run(scenario())
