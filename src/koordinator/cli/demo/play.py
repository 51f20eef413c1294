"""Runs the day: a local cluster in a folder of its own, pods offered by the script, everything observed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Final, Protocol

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from koordinator.api.installation import NAMESPACE
from koordinator.api.kinds import CONFIG_MAPS, NODES
from koordinator.api.slo_controller_config import DEFAULT_NAME
from koordinator.base.clock import Clock
from koordinator.cli.demo import day as script
from koordinator.cli.demo import hot_node, rush, workloads
from koordinator.cli.demo.day import STEP_HOURS, Arrival
from koordinator.cli.demo.hot_node import Crawler
from koordinator.cli.demo.observation import KEPT_OFF, Day
from koordinator.cli.demo.progress import Program, page_at
from koordinator.cli.demo.steps import Steps
from koordinator.cli.demo.waiting import Waiting
from koordinator.cli.local_cluster import programs
from koordinator.cli.local_cluster.programs import LocalClusterOptions
from koordinator.cli.local_cluster.running import LocalCluster
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client, PatchType


async def pods_kept_off(port: int, plugin: str) -> int:
    """How many pods were placed while ``plugin`` kept them off at least one node."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        text = await response.text()
    return int(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == KEPT_OFF and sample.labels.get("plugin") == plugin
        )
    )


_STEP_SECONDS: Final = script.DAY_SECONDS * STEP_HOURS / 24
_MOST_EXTRA_HOURS: Final = 6.0
"""For the last pods, and the node that was set aside, which may still be on their way when the day is over."""
_PAGE: Final = "page"
_STARTED_NEXT: Final = {
    "manager": "koord-manager",
    "scheduler": "koord-scheduler",
    "nodes": f"{script.NODES} simulated nodes",
    "descheduler": "koord-descheduler",
    _PAGE: "the page for browsers",
}
_HOURS: Final = 24.0
_LINE_EVERY: Final = 3
_WAITED_LONG_SECONDS: Final = 5.0


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
            await client.create(CONFIG_MAPS, {"metadata": {"name": script.PACE}, "data": {}}, NAMESPACE)
            for name in cluster.names[1:]:
                say(f"starting {_STARTED_NEXT[name]}")
                await cluster.start(name)
            yield client
        finally:
            await client.close()
    finally:
        await cluster.stop()


async def play(cluster: LocalCluster, client: Client, clock: Clock, console: Console) -> Day:
    """Run the whole day and return what was seen of it. Raises NeverHappened."""
    day, options = Day(), cluster.options
    day.see_nodes((await client.list(NODES)).items)
    async with aiohttp.ClientSession() as session:
        with day_progress(console, clock) as shown:
            steps = Steps(
                client,
                Program("koord-manager", page_at(session, options.manager_port), "manager"),
                Program("koord-scheduler", page_at(session, options.scheduler_port), "scheduler"),
                Program("koord-descheduler", page_at(session, options.descheduler_port), "descheduler"),
                day,
                Crawler(client, options.descheduler_port),
                Waiting(clock, shown.waiting),
            )
            async with steps.watching():
                await run_script(steps, clock, shown)
                await steps.explain_too_large(options.scheduler_port)
    day.kept_off_hot_nodes = await pods_kept_off(options.scheduler_port, "LoadAwareScheduling")
    return day


def arrivals_by_hour() -> dict[float, list[Arrival]]:
    """Everything that is offered over the day."""
    by_hour: dict[float, list[Arrival]] = {}
    for arrival in (*script.script(), *workloads.arrivals(), *hot_node.arrivals(), *rush.arrivals()):
        by_hour.setdefault(arrival.hour, []).append(arrival)
    return by_hour


async def run_script(steps: Steps, clock: Clock, shown: Shown) -> None:
    """One step after the other, none sooner than the pace of the day has it, and none before all programs have dealt
    with what was before it."""
    offered, next_at = arrivals_by_hour(), clock.monotonic()
    hour = 0.0
    while hour < 24 or (hour < 24 + _MOST_EXTRA_HOURS and not steps.is_settled):
        await steps.take(hour, offered.get(hour, ()))
        shown.hour(hour, steps.description(hour))
        hour += STEP_HOURS
        # A step that took long is caught up with by the next ones, but never more than one of them.
        next_at = max(next_at, clock.monotonic() - _STEP_SECONDS) + _STEP_SECONDS
        await clock.sleep(max(0.0, next_at - clock.monotonic()))


def make_cluster(
    data: Path, seed: int, clock: Clock, say: Callable[[str], None], *, with_page: bool = False
) -> LocalCluster:
    """20 nodes whose day is short, on free ports. A page is for those who look at it afterwards."""
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
            pace=f"{NAMESPACE}/{script.PACE}",
            # There is one of each program, and one that is kept waiting for the processor must not end for it.
            leader_election=False,
        )
    options = programs.with_free_ports(options)
    path = data / "descheduler.yaml"
    path.write_text(yaml.safe_dump(hot_node.descheduler_configuration(options.descheduler_port)))
    options = replace(options, descheduler_config=path)
    names = [name for name in _STARTED_NEXT if with_page or name != _PAGE]
    return LocalCluster(options, ("apiserver", *names), clock, say, "koord demo")


def _scheduler_configuration(data: Path) -> Path:
    """The local cluster's profile; a pod that no node can take is tried again soon, since an hour takes seconds."""
    document = yaml.safe_load(programs.shipped_file("scheduler.yaml").read_text())
    document["podInitialBackoffSeconds"] = 1
    document["podMaxBackoffSeconds"] = 1
    document["leaderElection"] = {"leaderElect": False}
    path = data / "scheduler.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


class Shown(Protocol):
    """Shows how the day goes on."""

    def hour(self, hour: float, text: str) -> None:
        """The hour that it is, and a description of it."""

    def waiting(self, text: str) -> None:
        """What the day waits for."""


class _Bar:
    """On a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar = progress.add_task("midnight", total=_HOURS)
        self._text = "midnight"

    def hour(self, hour: float, text: str) -> None:
        self._text = text
        self._progress.update(self._bar, completed=min(hour, _HOURS), description=text)

    def waiting(self, text: str) -> None:
        self._progress.update(self._bar, description=f"{self._text}, {text}")


class _Lines:
    """In a file: a line for every three hours, and one for what is waited for long."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._shown = -1
        self._waited_since: float | None = None

    def hour(self, hour: float, text: str) -> None:
        self._waited_since = None
        if (part := int(hour) // _LINE_EVERY) > self._shown:
            self._shown = part
            self._print(text)

    def waiting(self, text: str) -> None:
        now = self._clock.monotonic()
        if self._waited_since is None:
            self._waited_since = now
        elif now - self._waited_since >= _WAITED_LONG_SECONDS:
            self._waited_since = now
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def day_progress(console: Console, clock: Clock) -> Iterator[Shown]:
    """Show the progress of one day."""
    if not console.is_terminal:
        yield _Lines(console, clock)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=40), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield _Bar(progress)
