"""The SLO ConfigMap as controllers see it."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.api.kinds import CONFIG_MAPS, EVENTS
from koordinator.kube.interface import PatchType
from koordinator.manager.slo_configuration import SLOConfigurationSource
from tests.manager.controller_bench import SYSTEM, ControllerBench, controller_bench

NAME = "slo-controller-config"


def source_of(made: ControllerBench) -> SLOConfigurationSource:
    return made.context.slo_configuration


async def write(made: ControllerBench, **data: str) -> None:
    await made.client.create(CONFIG_MAPS, {"metadata": {"name": NAME}, "data": data}, SYSTEM)


async def rewrite(made: ControllerBench, **data: str) -> None:
    await made.client.patch(CONFIG_MAPS, NAME, {"data": data}, PatchType.MERGE, SYSTEM)


async def changed(source: SLOConfigurationSource) -> asyncio.Event:
    happened = asyncio.Event()
    source.listen(happened.set)
    return happened


def test_without_a_config_map_the_defaults_are_in_force() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            source = source_of(made)
            async with made.working():
                before = source.current.colocation
                source.mark_synced()
                now = source.current.colocation
                assert (before.available, now.available, now.strategies.cluster.enable) == (False, True, False)

    asyncio.run(scenario())


def test_a_config_map_that_does_not_exist_is_named_once_with_the_command_that_installs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            source = source_of(made)
            async with made.working():
                for _ in range(2):
                    with source.in_charge():
                        pass

    asyncio.run(scenario())
    (said,) = [record.getMessage() for record in caplog.records if "does not exist" in record.getMessage()]
    assert said == (
        "ConfigMap koordinator-system/slo-controller-config does not exist, so that no node lends anything: "
        "koord manifests --only config-maps | kubectl apply -f -"
    )


def test_what_is_written_is_in_force() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await write(made, **{"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 70}'})
            source = source_of(made)
            async with made.working():
                source.mark_synced()
                assert source.current.colocation.strategies.cluster.cpu_reclaim_threshold_percent == 70

    asyncio.run(scenario())


def test_listeners_hear_of_changes() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            source = source_of(made)
            async with made.working(), asyncio.timeout(20):
                happened = await changed(source)
                await write(made, **{"colocation-config": '{"enable": true}'})
                await happened.wait()
                assert source.current.colocation.strategies.cluster.enable

    asyncio.run(scenario())


def test_a_broken_value_leaves_the_last_good_one_and_is_reported() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await write(made, **{"colocation-config": '{"enable": true}'})
            source = source_of(made)
            async with made.working(), asyncio.timeout(20):
                happened = await changed(source)
                await rewrite(made, **{"colocation-config": "{"})
                with source.in_charge():
                    event = await made.once(EVENTS, lambda _: True, SYSTEM)
                await happened.wait()
            assert source.current.colocation.strategies.cluster.enable
            assert (event.reason, event.involved_object.name) == ("ColocationCfgUnmarshalFailed", NAME)
            assert "colocation-config" in event.message
            key = {"key": "colocation-config"}
            assert made.metrics.registry.get_sample_value("koord_manager_slo_configuration_in_error", key) == 1

    asyncio.run(scenario())


def test_what_was_repaired_is_no_error_any_more() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await write(made, **{"colocation-config": "{"})
            source = source_of(made)
            async with made.working(), asyncio.timeout(20):
                happened = await changed(source)
                await rewrite(made, **{"colocation-config": '{"enable": true}'})
                await happened.wait()
            key = {"key": "colocation-config"}
            assert made.metrics.registry.get_sample_value("koord_manager_slo_configuration_in_error", key) == 0

    asyncio.run(scenario())


def test_deleting_the_config_map_leaves_it_in_force() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await write(made, **{"colocation-config": '{"enable": true}'})
            source = source_of(made)
            async with made.working(), asyncio.timeout(20):
                gone = asyncio.Event()
                (informer,) = (each for each in made.informers if each.kind is CONFIG_MAPS)
                informer.add_handlers(on_delete=lambda _: gone.set())
                await made.client.delete(CONFIG_MAPS, NAME, SYSTEM)
                await gone.wait()
                source.mark_synced()
            assert source.current.colocation.strategies.cluster.enable

    asyncio.run(scenario())
