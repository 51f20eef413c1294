"""Random calls get the same responses of a real containerd directly and through the proxy that has no hook servers."""

from __future__ import annotations

import asyncio
from random import Random

import grpc
import pytest

from tests.real.container_runtime import ProxiedRuntime, proxied_runtime
from tests.real.cri_fuzz import Fuzzer, Side, outcome
from tests.real.programs import RealPrograms
from tests.runtime_proxy.fake_servers import channel


async def _converse(node: ProxiedRuntime, seed: int, calls: int) -> None:
    fuzzer = Fuzzer(Random(seed))
    successes = 0
    async with channel(node.runtime.socket) as direct, channel(node.proxy.socket) as through:
        sides = Side("side-a", direct), Side("side-b", through)
        for number in range(calls):
            call = fuzzer.next_call(len(sides[0].pods), len(sides[0].containers))
            outcomes = await asyncio.gather(*(outcome(side, call) for side in sides))
            assert outcomes[0] == outcomes[1], f"seed {seed}, call {number}: {call}"
            successes += outcomes[0].code is grpc.StatusCode.OK
        # Otherwise nothing would be compared but errors.
        assert successes > calls // 5


@pytest.mark.parametrize(("seed", "calls"), [(1, 400), pytest.param(2, 10_000, marks=pytest.mark.slow)])
def test_every_response_is_the_same(real_programs: RealPrograms, seed: int, calls: int) -> None:
    with proxied_runtime(real_programs, lambda folder: ()) as node:
        asyncio.run(_converse(node, seed, calls))
