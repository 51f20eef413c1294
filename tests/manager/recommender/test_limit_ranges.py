"""The bounds that LimitRanges set to containers, and what becomes of a recommendation beyond them."""

from __future__ import annotations

import asyncio

from koordinator.manager.recommender.limit_ranges import LIMIT_RANGES, LimitRangeLister
from koordinator.model.container_sizes import Bounds
from tests.manager.controller_bench import controller_bench


def test_the_tightest_bounds_of_containers_count() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            lister = LimitRangeLister(made.informers, "")
            for name, limits in (
                ("one", [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "4", "memory": "1Gi"}}]),
                (
                    "other",
                    [
                        {"type": "Container", "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "1.5"}},
                        {"type": "Pod", "max": {"cpu": "1"}},
                    ],
                ),
            ):
                body = {"metadata": {"name": name}, "spec": {"limits": limits}}
                await made.client.create(LIMIT_RANGES, body, "default")
            async with made.working():
                assert lister.bounds_of("default") == {"cpu": Bounds(100, 2000, 1500), "memory": Bounds(None, 1 << 30)}
                assert lister.bounds_of("kube-system") == {}

    asyncio.run(scenario())
