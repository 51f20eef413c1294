"""A day of all decisions on 1,000 simulated nodes, in one process and by a clock that passes as fast as they are made.

The embedded API, the simulated nodes, koord-scheduler, the controllers of koord-manager and koord-descheduler with
LowNodeLoad and migrations run as in ``koord up``, without sockets and leases of programs. Pods come evenly over the
day, run and end, so that nothing should grow: after each simulated hour all garbage is collected, and the blocks of
memory that Python has given out are counted, as is the resident size. A pod is lost if it has no node, or is still
there, in the end.

SIGTERM ends the day early, with what was seen until then.

usage: python -m benchmarks.simulated_day [--nodes 1000] [--hours 24] [--pods-per-hour 600] [--report-minutes 30]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from benchmarks.daily_pods import NAMESPACE
from benchmarks.daily_pods import documents as pod_documents
from benchmarks.soak_checks import Bookings
from benchmarks.soak_readings import slope
from koordinator.api.kinds import CONFIG_MAPS, EVENTS, NODES, POD_MIGRATION_JOBS, PODS, PRIORITY_CLASSES
from koordinator.api.pod import is_finished
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.process import stop_on_signals
from koordinator.base.program import Process
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import Scenario, default_scenario, scale
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import resolve
from koordinator.descheduler.main import BUILT_IN
from koordinator.descheduler.program import Descheduler
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.reconciler import run_controllers
from koordinator.manager.controller_table import BUILT
from koordinator.manager.controllers import ControllerContext, make_controllers
from koordinator.manager.options import Options as ManagerOptions
from koordinator.scheduler.assembly import make_scheduler
from koordinator.scheduler.configuration.loading import load_configuration
from koordinator.scheduler.cycle.failure_report import PodEvents
from koordinator.scheduler.options import parse_options
from koordinator.scheduler.program import SchedulerOptions
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.in_process_client import InProcessClient
from koordinator.simulate.simulated_clock import SimulatedClock
from koordinator.simulate.snapshot import Snapshot

Document = dict[str, Any]
_START: Final = datetime(2026, 5, 4, tzinfo=UTC)
_SYSTEM: Final = "koordinator-system"
_HISTORY: Final = HistoryLimits(changes=20_000, size=16 << 20)
_LIFE: Final = timedelta(hours=2)
"""Of pods that do not end by themselves."""
_END_MINUTES: Final = 60
_HOUR: Final = 60
_PRIORITIES: Final = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500}
_DESCHEDULER: Final[Document] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "5m",
    "profiles": [
        {
            "name": "koord-descheduler",
            "plugins": {
                "balance": {"enabled": [{"name": "LowNodeLoad"}]},
                "evict": {"enabled": [{"name": "MigrationController"}]},
                "filter": {"enabled": [{"name": "MigrationController"}]},
            },
            "pluginConfig": [
                {
                    "name": "LowNodeLoad",
                    "args": {
                        "apiVersion": "descheduler/v1alpha2",
                        "kind": "LowNodeLoadArgs",
                        "nodeMetricExpirationSeconds": 3600,
                        "lowThresholds": {"cpu": 5},
                        "highThresholds": {"cpu": 12},
                    },
                }
            ],
        }
    ],
}
"""So low that some of the nodes are hot."""


class DayClock(SimulatedClock):
    """The wall clock moves, too."""

    def now(self) -> datetime:
        return ManualClock.now(self)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=24, help="simulated hours (default 24)")
    parser.add_argument("--pods-per-hour", type=int, default=600)
    parser.add_argument(
        "--report-minutes", type=int, default=10, help="minutes between the reports and heartbeats of a node"
    )
    options = parser.parse_args(arguments)
    if min(options.nodes, options.hours, options.pods_per_hour, options.report_minutes) <= 0:
        parser.error("all of them must be above 0")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when nothing was lost, given out twice or grew."""
    given = parse(arguments)
    # Watches in this process have no bookmarks: what is quiet for long is watched anew, which is said each time.
    logging.getLogger("koordinator").setLevel(logging.ERROR)
    # asyncio's own loop: the clock has to see whether any task can run.
    document = asyncio.run(SimulatedDay(given).run())
    print(json.dumps(document))
    return 0 if document["ok"] else 1


class SimulatedDay:
    """One day; ``run`` it once."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._clock = DayClock(_START)
        self._documents = pod_documents(given.pods_per_hour * given.hours)
        self._created = self._deleted = 0
        self._delete_at: dict[str, datetime] = {}
        self._migrations: Counter[str] = Counter()
        self._hours: list[Document] = []

    async def run(self) -> Document:
        given, clock, stop = self._given, self._clock, asyncio.Event()
        stop_on_signals(stop)
        snapshot = Snapshot("simulated day", _START, _START, {})
        api = await InProcessApi.loaded(snapshot, clock, 1, _HISTORY)
        client = InProcessClient(api.environment)
        await _prepare(client)
        pods, nodes, jobs = (Informer[Any](client, kind, clock=clock) for kind in (PODS, NODES, POD_MIGRATION_JOBS))
        bookings = Bookings(nodes.get)
        pods.add_handlers(
            on_add=lambda pod, initial: bookings.seen(pod),
            on_update=lambda old, new: self._changed(bookings, new),
            on_delete=lambda pod: self._gone(bookings, pod),
        )
        jobs.add_handlers(on_update=lambda old, new: self._migrated(old, new))
        began = time.perf_counter()
        loops = [pods.run(), nodes.run(), jobs.run(), api.run_quotas(), *self._programs(client)]
        tasks = [asyncio.create_task(each) for each in loops]
        try:
            for minute in range(given.hours * _HOUR):
                if stop.is_set():
                    break
                await self._create(client, minute)
                await self._delete(client, pods)
                await clock.advance(60.0)
                _raise_of(tasks)
                if minute % _HOUR == _HOUR - 1:
                    self._note(minute // _HOUR + 1, pods, bookings, time.perf_counter() - began)
            for _ in range(_END_MINUTES):
                await self._delete(client, pods, everything=True)
                await clock.advance(60.0)
                _raise_of(tasks)
            left = [pod.metadata.name for pod in pods.list() if pod.metadata.namespace == NAMESPACE]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._report(left, bookings, time.perf_counter() - began)

    def _programs(self, client: InProcessClient) -> list[Any]:
        """The loops of the programs, each with metrics and events of its own."""
        clock, random = self._clock, Random(1)
        scenario = _scenario(self._given.nodes, self._given.report_minutes)
        fleet = Fleet(client, scenario, clock=clock, random=random)
        events = [EventBroadcaster(client, instance=name, clock=clock, random=random) for name in "sdm"]
        configuration = load_configuration(shipped_file("scheduler.yaml"))
        scheduler = make_scheduler(
            client,
            PodEvents(events[0], [profile.scheduler_name for profile in configuration.profiles]),
            configuration,
            parse_options(()),
            SchedulerOptions(),
            metrics=Metrics(),
            clock=clock,
            random=random,
        )
        process = Process(clock=clock, random=random)
        descheduler = Descheduler(
            client, events[1], resolve(_DESCHEDULER, "", Catalogue(BUILT_IN, lambda: ())), process
        )
        informers = InformerSet(client, clock=clock, random=random)
        context = ControllerContext(client, informers, events[2], ManagerOptions(), Metrics(), clock, random)
        controllers = make_controllers(context, BUILT)
        return [
            fleet.run(),
            *(each.run() for each in events),
            scheduler.watch(),
            scheduler.schedule(asyncio.Event()),
            descheduler.informers.run(),
            descheduler.deschedule(process.stop),
            informers.run(),
            run_controllers(informers, controllers),
        ]

    async def _create(self, client: InProcessClient, minute: int) -> None:
        due = self._given.pods_per_hour * (minute + 1) // _HOUR
        while self._created < due:
            await client.create(PODS, next(self._documents), NAMESPACE)
            self._created += 1

    async def _delete(self, client: InProcessClient, pods: Informer[Any], *, everything: bool = False) -> None:
        now = self._clock.now()
        due = [name for name, moment in self._delete_at.items() if moment <= now]
        if everything:
            due = [pod.metadata.name for pod in pods.list() if pod.spec.node_name]
        for name in due:
            self._delete_at.pop(name, None)
            try:
                await client.delete(PODS, name, NAMESPACE)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
        if now.minute == 0:
            # As an API server forgets them after an hour.
            await client.delete_collection(EVENTS, NAMESPACE)

    def _changed(self, bookings: Bookings, pod: Any) -> None:
        bookings.seen(pod)
        name = pod.metadata.name
        if is_finished(pod):
            self._delete_at[name] = self._clock.now()
        elif pod.spec.node_name:
            self._delete_at.setdefault(name, self._clock.now() + _LIFE)

    def _gone(self, bookings: Bookings, pod: Any) -> None:
        bookings.gone(pod)
        self._delete_at.pop(pod.metadata.name, None)
        self._deleted += 1

    def _migrated(self, old: Any, new: Any) -> None:
        if old.status.phase != new.status.phase:
            self._migrations[new.status.phase] += 1

    def _note(self, hour: int, pods: Informer[Any], bookings: Bookings, seconds: float) -> None:
        gc.collect()
        held = {
            "hour": hour,
            "blocks": sys.getallocatedblocks(),
            "resident": round(_resident_mebibytes(), 1),
            "tasks": len(asyncio.all_tasks()),
            "pods": len(pods),
            "bound": bookings.bound,
        }
        self._hours.append(held)
        text = f"simulated_day: {json.dumps(held)} after {seconds:.0f} s; migrations {dict(self._migrations)}"
        print(text, file=sys.stderr, flush=True)

    def _report(self, left: list[str], bookings: Bookings, seconds: float) -> Document:
        kept = [each for each in self._hours if each["hour"] > max(2, len(self._hours) // 10)]
        growth = {name: _growth(kept, name) for name in ("blocks", "resident", "tasks")} if len(kept) > 2 else {}
        return {
            "benchmark": "simulated_day",
            **vars(self._given),
            "hours": len(self._hours),
            "ok": not (left or bookings.faults or any(each["grows"] for each in growth.values())),
            "created": self._created,
            "bound": bookings.bound,
            "deleted": self._deleted,
            "left_over": left[:20],
            "given_out_twice": dict(bookings.faults),
            "migrations": dict(self._migrations),
            "growth": growth,
            "hours_seen": self._hours,
            "real_seconds": round(seconds),
        }


def _growth(hours: list[Document], name: str) -> Document:
    """An hour's growth that is none: half a percent."""
    found = slope([(each["hour"] * 3600.0, float(each[name])) for each in hours])
    bound = 0.005 * hours[0][name]
    return {
        "first": hours[0][name],
        "last": hours[-1][name],
        "slope_per_hour": found.per_hour,
        "slope_least": found.least,
        "slope_most": found.most,
        "bound_per_hour": round(bound, 2),
        "grows": found.least > bound,
    }


async def _prepare(client: InProcessClient) -> None:
    for name, value in _PRIORITIES.items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        try:
            await client.create(PRIORITY_CLASSES, {**body, "value": value})
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
    configuration = {"colocation-config": json.dumps({"enable": True})}
    metadata = {"name": "slo-controller-config"}
    await client.create(CONFIG_MAPS, {"metadata": metadata, "data": configuration}, _SYSTEM)


def _scenario(nodes: int, report_minutes: int) -> Scenario:
    scenario = scale(default_scenario(), nodes)
    interval = timedelta(minutes=report_minutes)
    timing = msgspec.structs.replace(
        scenario.timing,
        report_interval=interval,
        heartbeat_interval=interval,
        lease_interval=interval,
        lease_duration=3 * interval,
    )
    return msgspec.structs.replace(scenario, zones=["zone-0", "zone-1", "zone-2"], timing=timing)


def _raise_of(tasks: list[asyncio.Task[Any]]) -> None:
    """What has ended a program, none of which ends by itself."""
    for task in tasks:
        if task.done():
            task.result()


def _resident_mebibytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    sys.exit(main())
