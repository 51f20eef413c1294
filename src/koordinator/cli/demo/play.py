"""Runs the day: a local cluster in a folder of its own, pods offered by the script, everything observed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from importlib import resources
from pathlib import Path

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODES, PODS
from koordinator.api.slo_controller_config import DEFAULT_NAME
from koordinator.base.clock import Clock, SystemClock
from koordinator.cli.demo import day as script
from koordinator.cli.demo.explanation import explain
from koordinator.cli.demo.faulty_node import FaultyNode
from koordinator.cli.demo.observation import Day
from koordinator.cli.demo.scheduler_metrics import pods_kept_off
from koordinator.cli.local_cluster import programs
from koordinator.cli.local_cluster.prepare import prepare
from koordinator.cli.local_cluster.programs import LocalClusterOptions
from koordinator.cli.supervisor import Supervisor
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client, PatchType

_OBSERVE_EVERY = 0.5
_SETTLE_SECONDS = 20.0


async def play(data: Path, seed: int) -> Day:
    """Run the whole day and return what was seen of it. Programs are stopped whatever happens."""
    clock = SystemClock()
    console = Console(stderr=True)
    console.print("Starting an embedded API server, 20 simulated nodes, koord-manager and koord-scheduler …")
    async with _local_cluster(data, seed, clock) as (cluster, client):
        day = Day()
        day.see_nodes((await client.list(NODES)).items)
        faulty = FaultyNode(client)
        with _progress(console) as progress:
            await _run_script(client, clock, day, faulty, progress)
        await _settle(client, clock, day, faulty)
        day.explained = await explain(client, cluster.scheduler_port, script.NAMESPACE, script.TOO_LARGE)
        day.kept_off_hot_nodes = await pods_kept_off(cluster.scheduler_port, "LoadAwareScheduling")
        return day


@asynccontextmanager
async def _local_cluster(data: Path, seed: int, clock: Clock) -> AsyncIterator[tuple[LocalClusterOptions, Client]]:
    scheduler_port, manager_port, health_port, webhook_port = _free_ports(4)
    with resources.as_file(resources.files(__package__) / "scenario.yaml") as scenario:
        cluster = LocalClusterOptions(
            data=data,
            kubeconfig=data / "kubeconfig",
            port=0,
            nodes=script.NODES,
            scheduler_port=scheduler_port,
            manager_port=manager_port,
            manager_health_port=health_port,
            webhook_port=webhook_port,
            scenario=scenario,
            scheduler_config=_scheduler_configuration(data),
            seed=seed,
            speed=script.SPEED,
        )
        supervisor = Supervisor(data / "logs", clock, lambda text: None)
        try:
            await supervisor.start(programs.api_server(cluster))
            client = await connect(ClientOptions(kubeconfig=str(cluster.kubeconfig)))
            try:
                await prepare(client)
                configuration = {"data": {"colocation-config": json.dumps(script.COLOCATION)}}
                await client.patch(CONFIG_MAPS, DEFAULT_NAME, configuration, PatchType.MERGE, NAMESPACE)
                await supervisor.start(programs.manager(cluster))
                await supervisor.start(programs.scheduler(cluster))
                await supervisor.start(programs.simulated_nodes(cluster))
                yield cluster, client
            finally:
                await client.close()
        finally:
            await supervisor.stop()


async def _run_script(client: Client, clock: Clock, day: Day, faulty: FaultyNode, progress: Progress) -> None:
    offers = script.script()
    bar = progress.add_task("midnight", total=24.0)
    began = clock.monotonic()
    offered = 0
    while (hour := (clock.monotonic() - began) * 24 / script.DAY_SECONDS) < 24:
        while offered < len(offers) and offers[offered].hour <= hour:
            await asyncio.gather(*(client.create(PODS, pod, script.NAMESPACE) for pod in offers[offered].pods))
            offered += 1
        await _observe(client, day, hour)
        await faulty.follow(day, hour)
        progress.update(bar, completed=hour, description=_description(day, hour))
        await clock.sleep(_OBSERVE_EVERY)
    progress.update(bar, completed=24.0)


async def _settle(client: Client, clock: Clock, day: Day, faulty: FaultyNode) -> None:
    """The last pods, and the node that was set aside, may still be on their way when the day is over."""
    deadline = clock.monotonic() + _SETTLE_SECONDS
    while not _is_settled(day) and clock.monotonic() < deadline:
        await clock.sleep(_OBSERVE_EVERY)
        day.see_pods((await client.list(PODS, script.NAMESPACE)).items)
        day.see_marks(24.0, (await client.list(NODES)).items)
        await faulty.follow(day, 24.0)


def _is_settled(day: Day) -> bool:
    marks = day.marks.get(script.FAULTY, [])
    is_back = bool(marks) and not marks[-1].reason and marks[-1].batch_cpu > 0
    return is_back and all(pod.node or pod.name == script.TOO_LARGE for pod in day.pods.values())


async def _observe(client: Client, day: Day, hour: float) -> None:
    metrics, nodes, pods = await asyncio.gather(
        client.list(NODE_METRICS), client.list(NODES), client.list(PODS, script.NAMESPACE)
    )
    day.see_metrics(hour, metrics.items)
    day.see_offers(hour, nodes.items)
    day.see_marks(hour, nodes.items)
    day.see_pods(pods.items)


def _description(day: Day, hour: float) -> str:
    latest = day.moments[-1].nodes
    capacity = sum(day.capacity.values())
    used = sum(usage.used for usage in latest.values()) * 100 // capacity
    pending = sum(1 for pod in day.pods.values() if not pod.node)
    return f"{int(hour):02d}:{int(hour % 1 * 60):02d}  CPU {used:3d} %  pods {len(day.pods):3d}  pending {pending:2d}"


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=40),
        TimeElapsedColumn(),
        console=console,
    )


def _scheduler_configuration(data: Path) -> Path:
    """The local cluster's profile; a pod that no node can take is tried again soon, since an hour takes seconds."""
    document = yaml.safe_load(programs.shipped_file("scheduler.yaml").read_text())
    document["podInitialBackoffSeconds"] = 1
    document["podMaxBackoffSeconds"] = 1
    path = data / "scheduler.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
