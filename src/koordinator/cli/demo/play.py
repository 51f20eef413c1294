"""Runs the day: a local cluster in a folder of its own, pods offered by the script, everything observed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Final

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES, POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.slo_controller_config import DEFAULT_NAME
from koordinator.base.clock import Clock
from koordinator.cli.demo import day as script
from koordinator.cli.demo import hot_node, rush, workloads
from koordinator.cli.demo.day import FAULTY, FAULTY_FROM_HOUR, FAULTY_TO_HOUR
from koordinator.cli.demo.hot_node import HOT, Crawler
from koordinator.cli.demo.observation import Day, explain
from koordinator.cli.local_cluster import programs
from koordinator.cli.local_cluster.programs import LocalClusterOptions
from koordinator.cli.local_cluster.running import LocalCluster
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION, Fault
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client, PatchType

# What the scheduler counts of its own work, read from its /metrics.


_KEPT_OFF = "scheduler_pods_kept_off_nodes_total"


async def pods_kept_off(port: int, plugin: str) -> int:
    """How many pods were placed while ``plugin`` kept them off at least one node."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        text = await response.text()
    return int(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == _KEPT_OFF and sample.labels.get("plugin") == plugin
        )
    )


# One node whose agent reports nonsense, for some hours and at least until koord-manager has noticed.


class FaultyNode:
    """Call ``follow`` after each look at the nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._has_fault = False

    async def follow(self, day: Day, hour: float) -> None:
        """Have the fault begin or end, when it is time."""
        marks = day.marks.get(FAULTY, [])
        if not self._has_fault and not marks and hour >= FAULTY_FROM_HOUR:
            await self._say(Fault.NEGATIVE_READINGS)
        elif self._has_fault and marks and hour >= FAULTY_TO_HOUR:
            await self._say(None)

    async def _say(self, fault: Fault | None) -> None:
        patch = {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}}
        await self._client.patch(NODES, FAULTY, patch, PatchType.MERGE)
        self._has_fault = fault is not None


_OBSERVE_EVERY = 0.5
_SETTLE_SECONDS = 20.0
_STARTED_NEXT: Final = {
    "manager": "koord-manager",
    "scheduler": "koord-scheduler",
    "nodes": f"{script.NODES} simulated nodes",
    "descheduler": "koord-descheduler",
}
_HOURS: Final = 24.0
_LINE_EVERY: Final = 3
Show = Callable[[float, str], None]
"""Called with the hour and a description of it, several times an hour."""


@asynccontextmanager
async def running(cluster: LocalCluster, say: Callable[[str], None]) -> AsyncIterator[Client]:
    """The cluster of the day, stopped at the end whatever happens, and a client for it."""
    try:
        say("starting an embedded API server")
        await cluster.start("apiserver")
        client = await connect(ClientOptions(kubeconfig=str(cluster.options.kubeconfig)))
        try:
            strategies = {"colocation-config": script.COLOCATION, "resource-threshold-config": rush.SUPPRESSION}
            configuration = {"data": {name: json.dumps(strategy) for name, strategy in strategies.items()}}
            await client.patch(CONFIG_MAPS, DEFAULT_NAME, configuration, PatchType.MERGE, NAMESPACE)
            for name, what in _STARTED_NEXT.items():
                say(f"starting {what}")
                await cluster.start(name)
            yield client
        finally:
            await client.close()
    finally:
        await cluster.stop()


async def play(cluster: LocalCluster, client: Client, clock: Clock, console: Console) -> Day:
    """Run the whole day and return what was seen of it."""
    day = Day()
    day.see_nodes((await client.list(NODES)).items)
    faulty = FaultyNode(client)
    crawler = Crawler(client, cluster.options.descheduler_port)
    with day_progress(console) as show:
        await _run_script(client, clock, day, faulty, crawler, show)
    await _settle(client, clock, day, faulty)
    port = cluster.options.scheduler_port
    day.explained = await explain(client, port, script.NAMESPACE, script.TOO_LARGE)
    day.kept_off_hot_nodes = await pods_kept_off(port, "LoadAwareScheduling")
    return day


def make_cluster(data: Path, seed: int, clock: Clock, say: Callable[[str], None]) -> LocalCluster:
    """20 nodes whose day is short, on free ports."""
    with resources.as_file(resources.files(__package__) / "scenario.yaml") as scenario:
        options = LocalClusterOptions(
            data=data,
            kubeconfig=data / "kubeconfig",
            port=0,
            nodes=script.NODES,
            scheduler_port=0,
            manager_port=0,
            manager_health_port=0,
            webhook_port=0,
            scenario=scenario,
            scheduler_config=_scheduler_configuration(data),
            seed=seed,
            speed=script.SPEED,
        )
    options = programs.with_free_ports(options)
    path = data / "descheduler.yaml"
    path.write_text(yaml.safe_dump(hot_node.descheduler_configuration(options.descheduler_port)))
    options = replace(options, descheduler_config=path)
    return LocalCluster(options, ("apiserver", *_STARTED_NEXT), clock, say, "koord demo")


async def _run_script(client: Client, clock: Clock, day: Day, faulty: FaultyNode, crawler: Crawler, show: Show) -> None:
    all_arrivals = (*script.script(), *workloads.arrivals(), *hot_node.arrivals(), *rush.arrivals())
    arrivals = sorted(all_arrivals, key=lambda arrival: arrival.hour)
    began = clock.monotonic()
    arrived = 0
    while (hour := (clock.monotonic() - began) * 24 / script.DAY_SECONDS) < 24:
        while arrived < len(arrivals) and arrivals[arrived].hour <= hour:
            for kind, document in arrivals[arrived].objects:
                await client.create(kind, document, script.NAMESPACE if kind.namespaced else "")
            await asyncio.gather(*(client.create(PODS, pod, script.NAMESPACE) for pod in arrivals[arrived].pods))
            arrived += 1
        pods = await _observe(client, day, hour)
        await faulty.follow(day, hour)
        await crawler.follow(day.hot_node, hour, pods)
        show(hour, _description(day, hour))
        await clock.sleep(_OBSERVE_EVERY)


async def _settle(client: Client, clock: Clock, day: Day, faulty: FaultyNode) -> None:
    """The last pods, and the node that was set aside, may still be on their way when the day is over."""
    deadline = clock.monotonic() + _SETTLE_SECONDS
    while not _is_settled(day) and clock.monotonic() < deadline:
        await clock.sleep(_OBSERVE_EVERY)
        await _observe_pods(client, day, 24.0)
        day.see_marks(24.0, (await client.list(NODES)).items)
        await faulty.follow(day, 24.0)


def _is_settled(day: Day) -> bool:
    marks = day.marks.get(script.FAULTY, [])
    is_back = bool(marks) and not marks[-1].reason and marks[-1].batch_cpu > 0
    return is_back and all(pod.node or pod.name == script.TOO_LARGE for pod in day.pods.values())


async def _observe(client: Client, day: Day, hour: float) -> Sequence[Pod]:
    """Look at everything; the pods that there are."""
    metrics, nodes, jobs = await asyncio.gather(
        client.list(NODE_METRICS), client.list(NODES), client.list(POD_MIGRATION_JOBS)
    )
    day.see_metrics(hour, metrics.items)
    day.observe_batch_capacity(hour, nodes.items)
    day.see_marks(hour, nodes.items)
    pods = await _observe_pods(client, day, hour)
    usage = day.moments[-1].nodes.get(HOT)
    percent = usage.used * 100 // day.capacity[HOT] if usage is not None else None
    day.hot_node.see(hour, percent, pods, jobs.items)
    return pods


async def _observe_pods(client: Client, day: Day, hour: float) -> Sequence[Pod]:
    pods, reservations = await asyncio.gather(client.list(PODS, script.NAMESPACE), client.list(RESERVATIONS))
    day.see_pods(pods.items)
    day.workloads.see(hour, pods.items, reservations.items)
    return pods.items


def _description(day: Day, hour: float) -> str:
    latest = day.moments[-1].nodes
    capacity = sum(day.capacity.values())
    used = sum(usage.used for usage in latest.values()) * 100 // capacity
    pending = sum(1 for pod in day.pods.values() if not pod.node)
    return f"{int(hour):02d}:{int(hour % 1 * 60):02d}  CPU {used:3d} %  pods {len(day.pods):3d}  pending {pending:2d}"


def _scheduler_configuration(data: Path) -> Path:
    """The local cluster's profile; a pod that no node can take is tried again soon, since an hour takes seconds."""
    document = yaml.safe_load(programs.shipped_file("scheduler.yaml").read_text())
    document["podInitialBackoffSeconds"] = 1
    document["podMaxBackoffSeconds"] = 1
    path = data / "scheduler.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def day_progress(console: Console) -> Iterator[Show]:
    """Show the progress of one day."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=40), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("midnight", total=_HOURS)
            yield lambda hour, text: progress.update(bar, completed=hour, description=text)
            progress.update(bar, completed=_HOURS)
        return
    shown = -1

    def show(hour: float, text: str) -> None:
        nonlocal shown
        if (part := int(hour) // _LINE_EVERY) > shown:
            shown = part
            console.print(text, highlight=False, soft_wrap=True)

    yield show
