"""Nodes offer what their pods leave idle, on the embedded API."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from koordinator.api.kinds import CONFIG_MAPS, DEVICES, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.kube.interface import PatchType
from koordinator.manager.options import Options
from koordinator.model.overcommit.node_report import NODE_REPORTS
from tests.manager.controller_bench import SYSTEM, controller_bench
from tests.manager.node_resource.node_example import (
    BATCH_CPU,
    BATCH_MEMORY,
    MID_CPU,
    G,
    add_node,
    example,
    make,
    offers,
    report,
    working,
)


def test_a_node_offers_what_its_pods_leave_idle() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            node = await made.client.get(NODES, "n1")
            assert node.status.allocatable[BATCH_MEMORY].value == 33 * G
            assert node.status.capacity[BATCH_CPU].value == 25_000
            assert node.status.allocatable["cpu"].value == 100

    asyncio.run(scenario())


def test_it_shrinks_as_online_load_rises() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await made.clock.advance(60)
            await report(made, {"a": ("20", "11G"), "b": ("22", "22G")})
            await made.once(NODES, offers(BATCH_CPU, 16_000))

    asyncio.run(scenario())


def test_small_differences_wait() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            await made.clock.advance(60)
            await report(made, {"a": ("11.1", "11G"), "b": ("22", "22G")})
            later = made.clock.now()
            await made.until_known(NODE_REPORTS, lambda metric: metric.status.update_time == later)
            await made.clock.advance(0)
            explanation = controller.explanations.of("n1")
            assert explanation.at == later
            (batch_cpu,) = (each for each in explanation.amounts if each.resource == BATCH_CPU)
            assert batch_cpu.value == 24_900
            assert offers(BATCH_CPU, 25_000)(await made.client.get(NODES, "n1"))

    asyncio.run(scenario())


def test_old_metrics_take_the_offer_back_without_any_event() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await made.clock.advance(timedelta(minutes=15, seconds=2).total_seconds())
            node = await made.once(NODES, offers(BATCH_CPU, None))
            assert BATCH_CPU not in node.status.capacity

    asyncio.run(scenario())


def test_switching_colocation_off_takes_the_offer_back() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            name = made.context.options.slo_config_name
            patch = {"data": {"colocation-config": '{"enable": false}'}}
            await made.client.patch(CONFIG_MAPS, name, patch, PatchType.MERGE, SYSTEM)
            await made.once(NODES, offers(BATCH_CPU, None))

    asyncio.run(scenario())


def test_what_others_write_on_the_node_stays() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            theirs = {"status": {"allocatable": {"vendor/x": "3"}}, "metadata": {"annotations": {"their/own": "x"}}}
            await made.client.patch(NODES, "n1", theirs, PatchType.MERGE, subresource="status")
            await made.clock.advance(60)
            await report(made, {"a": ("20", "11G"), "b": ("22", "22G")})
            node = await made.once(NODES, offers(BATCH_CPU, 16_000))
            assert node.status.allocatable["vendor/x"].value == 3
            assert node.metadata.annotations["their/own"] == "x"

    asyncio.run(scenario())


def test_the_sum_is_explained() -> None:
    async def scenario() -> None:
        async with working() as (_, controller):
            explanation = controller.explanations.of("n1")
            (amount,) = (each for each in explanation.amounts if each.resource == BATCH_CPU)
            assert dict(amount.terms) == {
                "capacity": 100_000,
                "safetyMargin": -35_000,
                "systemUsage": -7_000,
                "podUsage": -33_000,
            }
            assert amount.policy == "usage"

    asyncio.run(scenario())


def test_terms_are_summed_up_for_all_nodes() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            sample = made.metrics.registry.get_sample_value
            labels = {"resource": BATCH_CPU, "term": "podUsage"}
            assert sample("koord_manager_overcommit_term", labels) == -33_000
            offered = {"node": "n1", "resource": BATCH_CPU, "unit": "integer"}
            assert sample("slo_controller_node_extended_resource_allocatable_internal", offered) == 25

    asyncio.run(scenario())


def test_what_terms_come_from_is_summed_up_too() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            sample = made.metrics.registry.get_sample_value
            name = "koord_manager_overcommit_input"
            assert sample(name, {"resource": BATCH_CPU, "input": "systemUsage"}) == 7_000
            assert sample(name, {"resource": MID_CPU, "input": "nodeUsage"}) == 40_000
            assert sample(name, {"resource": "kubernetes.io/mid-memory", "input": "capacity"}) == 120 * G
            reported = sample("koord_manager_overcommit_oldest_report_timestamp_seconds", {"resource": BATCH_CPU})
            assert reported == made.clock.now().timestamp()

    asyncio.run(scenario())


def test_nodes_are_counted_by_policy_or_by_why_they_offer_nothing() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):

            def counted(policy: str, reset: str) -> float | None:
                labels = {"resource": BATCH_CPU, "policy": policy, "reset": reset}
                return made.metrics.registry.get_sample_value("koord_manager_overcommit_nodes", labels)

            await add_node(made, "n2")
            await made.until_known(NODES, lambda node: node.metadata.name == "n2")
            async with asyncio.timeout(20):
                while controller.explanations.of("n2") is None:
                    await asyncio.sleep(0)
            assert (counted("usage", ""), counted("", "NoNodeMetric")) == (1, 1)

    asyncio.run(scenario())


def test_zones_are_explained_when_somebody_asks() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            amount = dict.fromkeys(("capacity", "allocatable", "available"), "50")
            zones = [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", **amount}]}]
            topology = {"metadata": {"name": "n1"}, "topologyPolicies": ["None"], "zones": zones}
            await made.client.create(NODE_RESOURCE_TOPOLOGIES, topology)
            async with asyncio.timeout(20):
                while not controller.explain("n1").zones:
                    await asyncio.sleep(0)
            cpu, _ = controller.explain("n1").zones
            assert (cpu.zone, cpu.resource, cpu.published) == ("node-0", BATCH_CPU, 0)
            assert dict(cpu.terms) == {
                "capacity": 50_000, "safetyMargin": -17_500, "systemUsage": -7_000, "podUsage": -33_000
            }  # fmt: skip
            assert controller.explain("n2") is None

    asyncio.run(scenario())


def test_a_node_that_is_gone_is_forgotten() -> None:
    async def scenario() -> None:
        async with working() as (made, controller):
            gone = asyncio.Event()
            made.informers.informer(NODES).add_handlers(on_delete=lambda _: gone.set())
            await made.client.delete(NODES, "n1")
            async with asyncio.timeout(20):
                await gone.wait()
            await made.clock.advance(0)
            assert controller.explanations.of("n1") is None

    asyncio.run(scenario())


@pytest.mark.parametrize("plugins", [("MidResource",), ("*", "-BatchResource")])
def test_plugins_can_be_switched_off(plugins: tuple[str, ...]) -> None:
    async def scenario() -> None:
        options = replace(Options(), node_resource_plugins=plugins)
        async with controller_bench(options) as made:
            await example(made)
            async with made.working(make(made)):
                node = await made.once(NODES, lambda node: MID_CPU in node.status.allocatable)
                assert BATCH_CPU not in node.status.allocatable

    asyncio.run(scenario())


def test_healthy_devices_are_offered() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            card = {"type": "gpu", "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
            device = {"metadata": {"name": "n1"}, "spec": {"devices": [card]}}
            await made.client.create(DEVICES, device)
            await made.once(NODES, offers("koordinator.sh/gpu-core", 100))

    asyncio.run(scenario())


def test_zones_offer_their_parts() -> None:
    def batch(topology: NodeResourceTopology) -> list[int]:
        return [info.allocatable.value for zone in topology.zones for info in zone.resources if info.name == BATCH_CPU]

    async def scenario() -> None:
        async with working() as (made, _):
            amount = dict.fromkeys(("capacity", "allocatable", "available"), "50")
            zones = [
                {"name": f"node-{number}", "type": "Node", "resources": [{"name": "cpu", **amount}]}
                for number in range(2)
            ]
            topology = {"metadata": {"name": "n1"}, "topologyPolicies": ["None"], "zones": zones}
            await made.client.create(NODE_RESOURCE_TOPOLOGIES, topology)
            await made.once(NODE_RESOURCE_TOPOLOGIES, lambda found: batch(found) == [12_500, 12_500])

    asyncio.run(scenario())


def test_a_metric_of_a_node_that_is_gone_disturbs_nothing() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            await report(made, {}, "nowhere")
            await add_node(made, "n2")
            await report(made, {}, "n2")
            await made.once(NODES, lambda node: node.metadata.name == "n2" and offers(BATCH_CPU, 58_000)(node))

    asyncio.run(scenario())


def test_devices_are_offered_where_colocation_is_off() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            name = made.context.options.slo_config_name
            patch = {"data": {"colocation-config": '{"enable": false}'}}
            await made.client.patch(CONFIG_MAPS, name, patch, PatchType.MERGE, SYSTEM)
            await made.once(NODES, offers(BATCH_CPU, None))
            card = {"type": "gpu", "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
            await made.client.create(DEVICES, {"metadata": {"name": "n1"}, "spec": {"devices": [card]}})
            await made.once(NODES, offers("koordinator.sh/gpu-core", 100))

    asyncio.run(scenario())


def test_runs_of_plugins_are_counted_by_one_stage_and_only_grow() -> None:
    async def scenario() -> None:
        async with working() as (made, _):
            (runs,) = (
                family
                for family in made.metrics.registry.collect()
                if family.name == "slo_controller_node_resource_run_plugin_status"
            )
            assert runs.type == "gauge"
            assert {sample.labels["reason"] for sample in runs.samples} == {"ResourceCalculate"}
            assert sum(sample.value for sample in runs.samples if sample.labels["status"] == "succeeded") > 0

    asyncio.run(scenario())
