"""Each object that an API server accepts and that says what cannot be, beside a good node."""

from __future__ import annotations

import pytest

from koordinator.api.kinds import NODES
from koordinator.api.quantity import parse_quantity
from tests.manager.broken_input.bench import BATCH_CPU, ManagerBench, node
from tests.manager.broken_input.neighbours import neighbour_follows, run
from tests.manager.broken_input.test_garbage import no_fault
from tests.real_world.broken_objects import BROKEN_NODE, BROKEN_OBJECTS, BrokenObject


@pytest.mark.parametrize("broken", BROKEN_OBJECTS, ids=lambda broken: broken.name)
def test_a_good_node_does_not_notice(broken: BrokenObject) -> None:
    bench = ManagerBench()
    bench.configure()
    bench.add_node("good")
    bench.report("good")
    bench.cluster.put(NODES, node(BROKEN_NODE))
    bench.report(BROKEN_NODE)

    async def story() -> None:
        bench.cluster.put(broken.kind, broken.copy())
        await bench.until_idle()
        await neighbour_follows(bench)
        stored = bench.cluster.found(NODES, BROKEN_NODE) or {}
        offered = stored["status"]["allocatable"].get(BATCH_CPU, "0")
        assert 0 <= parse_quantity(offered).value <= 100_000

    with no_fault(bench):
        run(bench, story)
