"""The day, step by step: simulated time goes on by half an hour when all programs have dealt with what was before.

Programs live in real time and the day in a simulated one. On a busy machine programs lag behind, and were the day
driven by the clock of the machine, they would be late for it by hours. So time stands still in between: a machine that
is ten times slower needs longer for the day, and sees the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from koordinator.api.installation import NAMESPACE as SYSTEM_NAMESPACE
from koordinator.api.kinds import (
    CONFIG_MAPS,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODES,
    POD_GROUPS,
    POD_MIGRATION_JOBS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.labels import POD_GROUP
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.cli.demo import hot_node
from koordinator.cli.demo.claim import clock, some
from koordinator.cli.demo.day import FAULTY, FAULTY_FROM_HOUR, FAULTY_TO_HOUR, NAMESPACE, PACE, TOO_LARGE, Arrival
from koordinator.cli.demo.hot_node import Crawler
from koordinator.cli.demo.observation import Day, explain, placed_pod
from koordinator.cli.demo.progress import Program, Round, newest
from koordinator.cli.demo.waiting import Expectation, Missing, NeverHappened, Waiting
from koordinator.cli.demo.workloads import RESERVATION_HOUR, RESERVED
from koordinator.cli.explain_failure import ExplainError
from koordinator.cluster.nodes.paced_time import Pace
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION, Fault
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.object_cache import newest as newer

_HOUR: Final = 3600.0
_KINDS_OF: Final[Mapping[str, tuple[Kind[Any], ...]]] = {
    "scheduler": (ELASTIC_QUOTAS, POD_GROUPS, RESERVATIONS),
    "manager": (ELASTIC_QUOTAS,),
}
"""Which of the kinds of the day's objects a program reads, by the name of its log."""


class FaultyNode:
    """One node whose agent reports nonsense, for some hours and at least until koord-manager has noticed. Call
    ``follow`` after each look at the nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._has_fault = False
        self.version = ""
        """The resourceVersion of the node with its last change."""

    async def follow(self, day: Day, hour: float) -> None:
        """Have the fault begin or end, when it is time."""
        marks = day.marks.get(FAULTY, [])
        if not self._has_fault and not marks and hour >= FAULTY_FROM_HOUR:
            await self._say(Fault.NEGATIVE_READINGS)
        elif self._has_fault and marks and hour >= FAULTY_TO_HOUR:
            await self._say(None)

    async def _say(self, fault: Fault | None) -> None:
        patch = {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}}
        written = await self._client.patch(NODES, FAULTY, patch, PatchType.MERGE)
        self.version = written.metadata.resource_version
        self._has_fault = fault is not None


class Steps:
    """Take them in their order, within ``watching``."""

    def __init__(
        self,
        client: Client,
        manager: Program,
        scheduler: Program,
        descheduler: Program,
        day: Day,
        crawler: Crawler,
        waiting: Waiting,
    ) -> None:
        self._client = client
        self._manager = manager
        self._scheduler = scheduler
        self._descheduler = descheduler
        self._day = day
        self._faulty = FaultyNode(client)
        self._crawler = crawler
        self._waiting = waiting
        self._bound = ""
        """The resourceVersion of the last change of a pod that has a node."""
        self._pods = Informer(client, PODS, namespace=NAMESPACE)
        selector = f"metadata.name={PACE}"
        self._pace = Informer(client, CONFIG_MAPS, namespace=SYSTEM_NAMESPACE, field_selector=selector)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the pods and the simulated time around a block."""
        changed = self._waiting.changed
        self._pods.add_handlers(
            on_add=lambda pod, initial: self._pod_changed(pod),
            on_update=lambda old, new: self._pod_changed(new),
            on_delete=lambda pod: self._pod_changed(pod),
        )
        self._pace.add_handlers(on_add=lambda found, initial: changed.set(), on_update=lambda old, new: changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(work) for work in (self._pods.run(), self._pace.run())]
                try:
                    for informer in (self._pods, self._pace):
                        await informer.wait_synced()
                    running.append(group.create_task(self._crawler.keep(self._pods.list)))
                    yield
                finally:
                    for task in running:
                        task.cancel()
        except ExceptionGroup as failed:
            # What ended the block is the caller's to deal with, as it was raised.
            if len(failed.exceptions) == 1:
                raise failed.exceptions[0] from None
            raise

    def _pod_changed(self, pod: Pod) -> None:
        if pod.spec.node_name:
            # One that is evicted before the next look was placed all the same.
            self._day.pods[pod.metadata.name] = placed_pod(pod)
            self._bound = newer(self._bound, pod.metadata.resource_version)
        self._waiting.changed.set()
        self._crawler.wake()

    @property
    def is_settled(self) -> bool:
        """Whether every pod has its place, and the node that was set aside lends again."""
        marks = self._day.marks.get(FAULTY, [])
        is_back = bool(marks) and not marks[-1].reason and marks[-1].batch_cpu > 0
        return is_back and all(pod.node or pod.name == TOO_LARGE for pod in self._day.pods.values())

    async def take(self, hour: float, arrivals: Sequence[Arrival]) -> None:
        """Go on to the hour, have all programs deal with it, look at it, and offer what arrives. Raises
        NeverHappened."""
        await self._go_on(hour)
        metrics = await self._reports_used(hour)
        await self._rebalanced(hour, metrics)
        await self._look(hour, metrics)
        created = await self._offer(hour, arrivals)
        await self._faulty.follow(self._day, hour)
        if hour == hot_node.HOUR:
            await self._crawler.begin()
        await self._crawler.query(self._day.hot_node)
        await self._decided(hour, created)
        await self._evicted(hour)
        reservations = await self._client.list(RESERVATIONS)
        self._day.see_pods(self._pods.list())
        self._day.workloads.see(hour, self._pods.list(), reservations.items)

    async def explain_too_large(self, scheduler_port: int) -> None:
        """Record what is said of the pod that no node can take, once its condition and its event have been written."""

        async def missing() -> str:
            try:
                self._day.explained = said = await explain(self._client, scheduler_port, NAMESPACE, TOO_LARGE)
            except ExplainError as error:
                return str(error)
            return "" if said.agrees else f"{said.message!r}, {said.condition!r} and {some(said.notes)}"

        what = f"the explanation, the condition and the event of {TOO_LARGE} say the same"
        # If they never do, the report has a claim that says so.
        with suppress(NeverHappened):
            await self._until(24.0, what, missing, _advice("scheduler"))

    def description(self, hour: float) -> str:
        """The state of the cluster in one line."""
        latest = self._day.moments[-1].nodes
        used = sum(usage.used for usage in latest.values()) * 100 // sum(self._day.capacity.values())
        pending = sum(1 for pod in self._day.pods.values() if not pod.node)
        return f"{clock(hour)}  CPU {used:3d} %  pods {len(self._day.pods):3d}  pending {pending:2d}"

    async def _go_on(self, hour: float) -> None:
        seconds = hour * _HOUR
        wanted = Pace.wanted(seconds, self._bound, self._faulty.version)
        await self._client.patch(CONFIG_MAPS, PACE, wanted, PatchType.MERGE, SYSTEM_NAMESPACE)

        async def missing() -> str:
            found = self._pace.get(f"{SYSTEM_NAMESPACE}/{PACE}")
            reached = None if found is None else Pace.of(found).reached
            if reached is None:
                return "they have not reported yet"
            return "" if reached >= seconds else f"they are at {clock(reached / _HOUR)}"

        what = "the simulated nodes have started and ended all pods that are due, and have reported their NodeMetrics"
        await self._until(hour, what, missing, ("koord status", "the log nodes.log"), is_watched=True)

    async def _reports_used(self, hour: float) -> Sequence[NodeMetric]:
        """Have the programs use the reports of the hour; returns them."""
        metrics = (await self._client.list(NODE_METRICS)).items
        reported: dict[Kind[Any], str] = {NODE_METRICS: newest(metrics)}
        what = "koord-manager has computed batch resources from these NodeMetrics"
        await self._until(hour, what, lambda: self._manager.lags(reported), _advice("manager"))
        nodes = (await self._client.list(NODES)).items
        known: dict[Kind[Any], str] = {**reported, NODES: newest(nodes)}
        what = "koord-scheduler has used the NodeMetrics and the batch resources of the nodes"
        await self._until(hour, what, lambda: self._scheduler.lags(known), _advice("scheduler"))
        self._day.observe_batch_capacity(hour, nodes)
        self._day.see_marks(hour, nodes)
        return metrics

    async def _rebalanced(self, hour: float, metrics: Sequence[NodeMetric]) -> None:
        """Until the hot node has cooled, have koord-descheduler look at each report of it, and do what it can now."""
        if hour < hot_node.HOUR or self._day.hot_node.rebalance is not None:
            return
        reported = Round(self._descheduler, "cycles", {NODE_METRICS: newest(metrics)})
        what = "koord-descheduler has ended a cycle with these NodeMetrics"
        await self._until(hour, what, reported.missing, _advice("descheduler"))
        reserved = {RESERVATIONS: newest((await self._client.list(RESERVATIONS)).items)}
        what = "koord-scheduler has tried to place what koord-descheduler has reserved"
        await self._until(hour, what, lambda: self._scheduler.lags(reserved), _advice("scheduler"))

    async def _look(self, hour: float, metrics: Sequence[NodeMetric]) -> None:
        """Look at everything that simulated time and the programs have changed."""
        self._day.see_metrics(hour, metrics)
        # Jobs first: the replacement of a job that has ended is there, then.
        jobs = (await self._client.list(POD_MIGRATION_JOBS)).items
        crawlers = (await self._client.list(PODS, NAMESPACE, label_selector=f"app={hot_node.CRAWLER}")).items
        usage = self._day.moments[-1].nodes.get(hot_node.HOT)
        percent = usage.used * 100 // self._day.capacity[hot_node.HOT] if usage is not None else None
        self._day.hot_node.see(hour, percent, crawlers, jobs)

    async def _offer(self, hour: float, arrivals: Sequence[Arrival]) -> list[str]:
        """Create what arrives: its objects first, and its pods when the programs know these. Returns their names."""
        created: list[str] = []
        for arrival in arrivals:
            for kind, document in arrival.objects:
                written = await self._client.create(kind, document, NAMESPACE if kind.namespaced else "")
                await self._known(hour, kind, written.metadata.resource_version)
            await asyncio.gather(*(self._client.create(PODS, pod, NAMESPACE) for pod in arrival.pods))
            created += [pod["metadata"]["name"] for pod in arrival.pods]
            self._day.placed_by_hand.update(
                pod["metadata"]["name"] for pod in arrival.pods if "nodeName" in pod["spec"]
            )
        return created

    async def _known(self, hour: float, kind: Kind[Any], version: str) -> None:
        """A pod that comes before the quota, the gang or the Reservation that it names would be treated as another."""
        for program in (each for each in (self._scheduler, self._manager) if kind in _KINDS_OF[each.log]):
            lags = partial(program.lags, {kind: version})
            await self._until(hour, f"{program.name} knows the new {kind.name}", lags, _advice(program.log))

    async def _decided(self, hour: float, created: Sequence[str]) -> None:
        """Have koord-scheduler decide about the pods that have arrived, and about the Reservation when it has."""

        async def undecided() -> str:
            pods = {pod.metadata.name: pod for pod in self._pods.list()}
            crawlers = [name for name, pod in pods.items() if hot_node.is_crawler(pod)]
            names = dict.fromkeys((*created, *crawlers))
            waiting = [name for name in names if name not in pods or not _is_decided(pods[name])]
            missing = self._crawler.missing(self._pods.list())
            waiting += [f"a new pod of {hot_node.CRAWLER}"] * missing
            return f"{len(waiting)} are not: {some(waiting)}" if waiting else ""

        async def reservation() -> str:
            found = await self._client.get(RESERVATIONS, RESERVED)
            available = found.status.phase in ("Available", "Succeeded")
            return "" if available else f"its phase is {found.status.phase or 'Pending'}"

        what = "each pod that has been created is placed, or has a condition PodScheduled that says why not"
        commands = tuple(f"koord explain pod {name}" for name in created[:1])
        await self._until(hour, what, undecided, (*commands, *_advice("scheduler")), is_watched=True)
        what = "koord-scheduler has nothing left to decide or to bind"
        await self._until(hour, what, lambda: self._scheduler.lags({}), _advice("scheduler"))
        if hour == RESERVATION_HOUR:
            advice = (f"koord explain reservation {RESERVED}", *_advice("scheduler"))
            await self._until(hour, f"the Reservation {RESERVED} is Available", reservation, advice)

    async def _evicted(self, hour: float) -> None:
        """Have those pods evicted for which a place is being reserved, and replaced."""

        async def under_way() -> str:
            jobs = [job for job in (await self._client.list(POD_MIGRATION_JOBS)).items if hot_node.is_under_way(job)]
            states = [f"{job.metadata.name} is at {job.status.status or 'its begin'}" for job in jobs]
            return some(states) if states else ""

        what = "no PodMigrationJob has a place to reserve or a pod to evict"
        advice = ("kubectl get podmigrationjobs,reservations -o yaml", *_advice("descheduler"))
        if await under_way():
            await self._until(hour, what, under_way, advice)
            await self._decided(hour, ())

    async def _until(
        self, hour: float, what: str, missing: Missing, advice: Sequence[str], *, is_watched: bool = False
    ) -> None:
        await self._waiting.until(clock(hour), Expectation(what, missing, advice, is_watched))


def _is_decided(pod: Pod) -> bool:
    """A pod of a gang is not tried before the gang is complete."""
    has_condition = any(each.type == "PodScheduled" for each in pod.status.conditions)
    return bool(pod.spec.node_name) or has_condition or POD_GROUP in pod.metadata.labels


def _advice(log: str) -> tuple[str, ...]:
    return ("koord status", f"the log {log}.log")
