"""How often the further rules for pods are taken from their ConfigMap: as the flag says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta

from koordinator.api.kinds import CONFIG_MAPS
from koordinator.manager.options import PodEnhancedValidatorOptions
from koordinator.manager.webhook.listers import ConfiguredRules
from tests.manager.broken_input.bench import SYSTEM, ManagerBench

NAME = "pod-enhanced-validator-config"


def put(bench: ManagerBench, rules: str, enable: str = "true") -> None:
    metadata = {"name": NAME, "namespace": SYSTEM}
    bench.cluster.put(CONFIG_MAPS, {"metadata": metadata, "data": {"enable": enable, "rules": rules}})


def requiring(label: str) -> str:
    return json.dumps([{"name": "r", "requiredLabels": [label]}])


def run(story: Callable[[ManagerBench, Callable[[], list[str]]], Awaitable[None]], interval: float = 60) -> None:
    """``story`` gets what labels are required as a pod is reviewed."""

    async def scenario() -> None:
        bench = ManagerBench()
        put(bench, requiring("first"))
        options = PodEnhancedValidatorOptions(reconcile_interval=timedelta(seconds=interval))
        rules = ConfiguredRules(bench.informers, options, bench.clock)
        async with bench.working():
            await story(bench, lambda: [label for rule in rules() for label in rule.required_labels])

    asyncio.run(scenario())


def test_the_first_pod_has_them_read() -> None:
    async def story(bench: ManagerBench, required: Callable[[], list[str]]) -> None:
        assert required() == ["first"]

    run(story)


def test_a_change_is_in_force_after_the_interval_and_not_before() -> None:
    async def story(bench: ManagerBench, required: Callable[[], list[str]]) -> None:
        assert required() == ["first"]
        put(bench, requiring("second"))
        await bench.clock.advance(59)
        assert required() == ["first"]
        await bench.clock.advance(1)
        assert required() == ["second"]

    run(story)


def test_an_interval_of_0_has_every_change_in_force_at_once() -> None:
    async def story(bench: ManagerBench, required: Callable[[], list[str]]) -> None:
        assert required() == ["first"]
        put(bench, requiring("second"))
        await bench.until_idle()
        assert required() == ["second"]

    run(story, interval=0)


def test_a_config_map_that_is_deleted_requires_nothing_after_the_interval() -> None:
    async def story(bench: ManagerBench, required: Callable[[], list[str]]) -> None:
        assert required() == ["first"]
        bench.cluster.remove(CONFIG_MAPS, NAME, SYSTEM)
        await bench.clock.advance(60)
        assert required() == []

    run(story)


def test_rules_that_cannot_be_read_leave_those_in_force_that_are() -> None:
    async def story(bench: ManagerBench, required: Callable[[], list[str]]) -> None:
        assert required() == ["first"]
        put(bench, "[")
        await bench.clock.advance(60)
        assert required() == ["first"]

    run(story)
