"""One contender in one case: start it, let it come to rest, give it the pods, let it go, and see what it did.

The contender stands for election while the benchmark holds the lease. So it is started, in sync and at rest when the
pods are created, all pods are there when it begins to schedule, and neither its start nor the creation of the pods
takes CPU from what is measured.
"""

from __future__ import annotations

import asyncio
import re
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import yaml

from benchmarks import pod_mixes, workload
from benchmarks.cases import Case
from benchmarks.contenders import ROOT, Contender
from benchmarks.figures import Figures, rate
from benchmarks.placements import Faults, broken_rules, over_allocatable, without_reservation
from benchmarks.process_usage import OtherLoad, Usage, until_quiet, usage_of
from benchmarks.stored_clusters import StoredClusters
from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import EVENTS, LEASES, PODS
from koordinator.api.manifests.installation import Installation, manifest_files
from koordinator.api.timestamps import format_micro_time
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client, Malformed
from tests.real.programs import RealPrograms

T = TypeVar("T")

_PROFILE: Final = Path(__file__).parent / "scheduler_profile.yaml"
_CHART_PROFILE: Final = "koord-scheduler-config.yaml"
_NAMESPACE: Final = "default"
_LEASE: Final = ("koord-scheduler", "koordinator-system")
_WAITS: Final = re.compile(r"acquire leader lease", re.IGNORECASE)
_TIMEOUT: Final = 300.0
_ELECTION_TIMEOUT: Final = 60.0
_EVENTS_TIMEOUT: Final = 10.0
_POLL: Final = 0.1


@dataclass(slots=True)
class Bindings:
    """What the watcher has seen."""

    moments: dict[str, float]
    targets: dict[str, str]
    moved: set[str]
    watches: int = 0
    """How many watches it took: an API server that is short of CPU ends them, and what it shows then comes late."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a benchmark have in common."""

    programs: RealPrograms
    clusters: StoredClusters
    folder: Path
    is_whole_profile: bool = False
    """The profile of the chart, with all of Koordinator's plugins."""
    checkout: Path | None = None
    """Of the earlier commit."""
    is_whole_profile_earlier: bool = False
    """The same of the earlier commit, which may not know all of these plugins."""


async def measure(contender: Contender, case: Case, setting: Setting) -> tuple[Figures, Faults]:
    folder, is_earlier = setting.folder, contender is Contender.EARLIER
    async with setting.clusters.started(case) as (plane, client):
        configuration = folder / "scheduler.yaml"
        whole = setting.is_whole_profile_earlier if is_earlier else setting.is_whole_profile
        configuration.write_text(chart_configuration(plane.kubeconfig) if whole else
                                 _configuration(case, plane.kubeconfig))  # fmt: skip
        await _hold_lease(client)
        command = contender.command(
            setting.programs, configuration, plane.kubeconfig, setting.checkout if is_earlier else None
        )
        async with _running(command, folder / "scheduler.log") as scheduler:
            return await scheduler.unless_ended(_measure(contender, case, client, scheduler))


def _configuration(case: Case, kubeconfig: Path) -> str:
    document = yaml.safe_load(_PROFILE.read_text().replace("KUBECONFIG", str(kubeconfig)))
    plugins = document["profiles"][0]["plugins"]
    for name, points in _plugins_of(case).items():
        for point in points:
            plugins.setdefault(point, {"enabled": []})["enabled"].append({"name": name})
    if case.reservations is not None:
        # It binds reserve pods and leaves the others to the next plugin; its nominated nodes outweigh other scores.
        plugins["bind"] = {"disabled": [{"name": "*"}], "enabled": [{"name": "Reservation"}, {"name": "DefaultBinder"}]}
        plugins["score"]["enabled"].append({"name": "Reservation", "weight": 5000})
    return yaml.safe_dump(document)


def chart_configuration(kubeconfig: Path) -> str:
    """That of the chart, with the connection and the expiry of node metrics of the other one."""
    plain = yaml.safe_load(_PROFILE.read_text().replace("KUBECONFIG", str(kubeconfig)))
    (text,) = [text for path, text in manifest_files(Installation()).items() if path.endswith(_CHART_PROFILE)]
    (text,) = yaml.safe_load(text)["data"].values()
    document = yaml.safe_load(text)
    (load_aware,) = plain["profiles"][0]["pluginConfig"]
    of_plugins = document["profiles"][0]["pluginConfig"]
    document["profiles"][0]["pluginConfig"] = [
        load_aware if each["name"] == load_aware["name"] else each for each in of_plugins
    ]
    return yaml.safe_dump({**document, "clientConnection": plain["clientConnection"]})


def _plugins_of(case: Case) -> dict[str, tuple[str, ...]]:
    """The plugins that a case needs beside those of the profile, with their extension points."""
    found: dict[str, tuple[str, ...]] = {}
    if case.quotas is not None:
        found["ElasticQuota"] = ("preFilter", "postFilter", "reserve")
    if case.pod_groups is not None:
        found["Coscheduling"] = ("preEnqueue", "preFilter", "postFilter", "reserve", "permit", "preBind", "postBind")
    if case.reservations is not None:
        found["Reservation"] = ("preFilter", "filter", "postFilter", "preScore", "reserve", "preBind")
    if case.pod_groups is not None or case.reservations is not None:
        found["DefaultPreBind"] = ("preBind",)
    return found


class Running:
    """A contender's process and its log."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def until_it_waits(self) -> None:
        """Until it stands for election and has taken in all that there is."""
        for _ in range(round(_ELECTION_TIMEOUT / _POLL)):
            if _WAITS.search(self._log.read_text(errors="replace")):
                return await until_quiet(self.process_id)
            await asyncio.sleep(_POLL)
        raise KoordinatorError(f"the scheduler did not stand for election within {_ELECTION_TIMEOUT:.0f} s")

    async def unless_ended(self, work: Awaitable[T]) -> T:
        """The result of ``work``. Raises KoordinatorError when the process ends before or the time is up."""
        working, ended = asyncio.ensure_future(work), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({working, ended}, timeout=_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            why = "ended early" if ended.done() else f"had not bound all pods in {_TIMEOUT:.0f} s"
            raise KoordinatorError(f"the scheduler {why}:\n{self._log.read_text(errors='replace')[-2000:]}")
        finally:
            working.cancel()
            ended.cancel()
            await asyncio.gather(working, ended, return_exceptions=True)


@asynccontextmanager
async def _running(command: list[str], log: Path) -> AsyncIterator[Running]:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output, cwd=ROOT)
    try:
        yield Running(process, log)
    finally:
        if process.returncode is None:
            # It has nothing left to do; what it would do at its end is not measured.
            process.kill()
            await process.wait()


async def _measure(contender: Contender, case: Case, client: Client, scheduler: Running) -> tuple[Figures, Faults]:
    await scheduler.until_it_waits()
    start_up = usage_of(scheduler.process_id)
    pods = case.pods()
    await workload.create_pods(client, pods, _NAMESPACE)
    await until_quiet(scheduler.process_id)
    page = await client.list(PODS, _NAMESPACE, limit=1)
    load = OtherLoad()
    await client.delete(LEASES, *_LEASE)
    bindings = await _watch_bindings(client, len(pods), page.resource_version)
    await _until_events_are_written(client, len(pods))
    usage, other_cores = usage_of(scheduler.process_id), load.cores()
    events = await _scheduled_events(client)
    faults = await _faults(contender, case, client, bindings, events)
    return _figures(start_up, usage, bindings, events, other_cores), faults


def _figures(start_up: Usage, usage: Usage, bindings: Bindings, events: int, other_cores: float) -> Figures:
    pods = len(bindings.moments)
    return Figures(
        pods_per_second=round(rate(bindings.moments.values()), 1),
        cpu_ms_per_pod=round((usage.cpu_seconds - start_up.cpu_seconds) * 1000 / pods, 3),
        cpu_ms_per_pod_with_start_up=round(usage.cpu_seconds * 1000 / pods, 3),
        start_up_cpu_seconds=round(start_up.cpu_seconds, 2),
        peak_mebibytes=round(usage.peak_bytes / 2**20, 1),
        nodes_used=len(set(bindings.targets.values())),
        events=events,
        seconds_first_to_last=round(max(bindings.moments.values()) - min(bindings.moments.values()), 2),
        watches=bindings.watches,
        other_cores=round(other_cores, 2),
    )


async def _hold_lease(client: Client) -> None:
    name, namespace = _LEASE
    now = format_micro_time(datetime.now(UTC))
    spec = {"holderIdentity": "benchmark", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    await workload.create(client, LEASES, {"metadata": {"name": name}, "spec": spec}, namespace)


async def _watch_bindings(client: Client, pods: int, resource_version: str) -> Bindings:
    seen = Bindings({}, {}, set())
    while len(seen.moments) < pods:
        seen.watches += 1
        async for event in client.watch(PODS, _NAMESPACE, resource_version=resource_version):
            resource_version = event.resource_version
            pod = event.object
            if pod is None or isinstance(pod, Malformed) or not pod.spec.node_name:
                continue
            name, target = pod.metadata.name, pod.spec.node_name
            if seen.targets.setdefault(name, target) != target:
                seen.moved.add(name)
            seen.moments.setdefault(name, time.perf_counter())
            if len(seen.moments) == pods:
                break
    return seen


async def _until_events_are_written(client: Client, pods: int) -> None:
    """Events may lag behind bindings. Those that never come are counted later."""
    for _ in range(round(_EVENTS_TIMEOUT / _POLL)):
        page = await client.list(EVENTS, _NAMESPACE, limit=1)
        if len(page.items) + (page.remaining or 0) >= pods:
            return
        await asyncio.sleep(_POLL)


async def _scheduled_events(client: Client) -> int:
    """How many pods have an event that says where they went."""
    events = (await client.list(EVENTS, _NAMESPACE)).items
    return len({event.involved_object.name for event in events if event.reason == "Scheduled"})


async def _faults(contender: Contender, case: Case, client: Client, bindings: Bindings, events: int) -> Faults:
    """Compares what the watcher has seen with what the API server has now."""
    found = (await client.list(PODS, _NAMESPACE)).items
    now = {pod.metadata.name: pod.spec.node_name for pod in found}
    using = {pod.metadata.name for pod in found if RESERVATION_ALLOCATED in pod.metadata.annotations}
    moved = {name for name, target in bindings.targets.items() if now.get(name) != target} | bindings.moved
    nodes = [workload.node(number) for number in range(case.nodes)]
    pods = case.pods()
    zones = {node["metadata"]["name"]: node["metadata"]["labels"][pod_mixes.ZONE] for node in nodes}
    everything = [*pods, *pod_mixes.running(case.running, case.nodes)]
    broken = broken_rules(pods, bindings.targets, zones) + without_reservation(pods, using)
    return Faults(
        not_bound=sum(not now.get(pod["metadata"]["name"]) for pod in pods),
        bound_elsewhere_later=len(moved),
        nodes_over_allocatable=len(over_allocatable(nodes, everything, bindings.targets)),
        rules_broken=len(broken) if contender.keeps_rules else 0,
        # Pods that were tried more than once have more than one.
        events_missing=max(len(pods) - events, 0),
    )
