"""The whole scheduler on an API server in memory: Reservations with CPUs, running pods that they take over, victims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, RESERVATIONS
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import RESTRICTED, PreAllocationPolicy, Reservation, ReservationStatus
from koordinator.scheduler.configuration.koordinator_arguments import NodeNUMAResourceArgs, ReservationArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from tests.scheduler.fakes import make_node, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.node_numa_resource.numa_cluster import pod, topology
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

FULL = {"requiredCPUBindPolicy": "FullPCPUs"}
_ARGS: dict[type[Any], Any] = {ReservationPlugin: ReservationArgs(), NodeNUMAResource: NodeNUMAResourceArgs()}


def profile(view: ClusterView, *, preempts: bool = False) -> Profile:
    base = make_profile(view, preempts=preempts)
    kinds: tuple[type[Any], ...] = (ReservationPlugin, NodeNUMAResource, DefaultPreBind)
    order = base.order
    for kind in kinds:
        order = listed(order, kind)
    score = (("Reservation", 100), ("NodeNUMAResource", 1))
    order = dataclasses.replace(order, pre_score=(*order.pre_score, "Reservation"), score=score)
    plugins = {kind.name: kind(_ARGS.get(kind), view) for kind in kinds}
    return Profile("koord-scheduler", {**base.plugins, **plugins}, order)


def pending(cpu: str, **spec: Any) -> Reservation:
    """Of bound CPUs on whole cores, for owners."""
    found = available("r", cpu, once=False, policy=RESTRICTED)
    template = pod("template", cpu, "1Gi", spec=FULL)
    metadata = replace(template.metadata, name="", uid="")
    return replace(
        found,
        spec=replace(found.spec, template=PodTemplateSpec(metadata=metadata, spec=template.spec), **spec),
        status=ReservationStatus(),
    )


def owner(name: str, cpu: str, **changes: Any) -> Pod:
    found = pod(name, cpu, spec=FULL, **changes)
    return replace(found, metadata=replace(found.metadata, labels={**found.metadata.labels, **OWNER}))


def running(name: str, cpus: str, count: str) -> Pod:
    """An owner that is bound to CPUs of the node."""
    status = {annotation_keys.RESOURCE_STATUS: {"cpuset": cpus}}
    found = owner(name, count, annotations=status)
    return replace(found, spec=replace(found.spec, node_name="a"))


def machine(*pods: Pod, cpu: str = "16") -> Callable[[], SchedulerApi]:
    def api() -> SchedulerApi:
        made = SchedulerApi()
        made.store(make_node("a", cpu=cpu))
        made.store(topology(), NODE_RESOURCE_TOPOLOGIES)
        for each in pods:
            made.store(each)
        return made

    return api


def written(fixture: RunningScheduler, kind: str, name: str) -> str:
    """The CPUs that the record of an object names."""
    (found,) = [each for each in fixture.api.objects(kind).values() if each.metadata.name == name]
    status = json.loads(found.metadata.annotations.get(annotation_keys.RESOURCE_STATUS, "{}"))
    return str(status.get("cpuset", ""))


def test_a_reservation_gets_cpus_and_its_owners_get_those() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending("8"), RESERVATIONS)
        await fixture.until_idle()
        assert written(fixture, "reservations", "r") == "0-7"
        fixture.api.store(pod("p", "4", spec=FULL))
        fixture.api.store(owner("o", "4"))
        await fixture.until_idle()
        assert written(fixture, "pods", "p") == "8-11"
        assert written(fixture, "pods", "o") == "0-3"
        fixture.api.drop("reservations", "r")

    simulate(story, machine(), profile)


def test_a_reservation_keeps_the_cpus_of_the_pod_that_it_takes_over() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending("6", pre_allocation=True), RESERVATIONS)
        await fixture.until_idle()
        assert written(fixture, "reservations", "r") == "0-1,8-11"
        fixture.api.drop("reservations", "r")

    simulate(story, machine(running("o", "8-11", "4")), profile)


def test_it_keeps_those_of_several_pods() -> None:
    async def story(fixture: RunningScheduler) -> None:
        policy = PreAllocationPolicy(enable_multiple=True)
        fixture.api.store(pending("12", pre_allocation=True, pre_allocation_policy=policy), RESERVATIONS)
        await fixture.until_idle()
        assert written(fixture, "reservations", "r") == "0-11"
        fixture.api.drop("reservations", "r")

    # By its amounts the node has free capacity for no more, although some CPUs are free.
    simulate(story, machine(running("o1", "2-5", "4"), running("o2", "8-11", "4"), cpu="12"), profile)


def test_a_reservation_that_is_too_small_does_not_take_over_a_pod() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending("4", pre_allocation=True), RESERVATIONS)
        await fixture.until_idle()
        assert written(fixture, "reservations", "r") == "0-3"
        fixture.api.drop("reservations", "r")

    simulate(story, machine(running("o", "8-13", "6")), profile)


def test_less_important_pods_leave_their_cpus() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod("small", "8", spec=FULL))
        fixture.api.store(pod("big", "8", spec=FULL))
        await fixture.until_idle()
        wanted = pod("p", "8", spec=FULL)
        fixture.api.store(replace(wanted, spec=replace(wanted.spec, priority=10)))
        await fixture.until_idle(30)
        assert written(fixture, "pods", "p") in ("0-7", "8-15")

    simulate(story, machine(), lambda view: profile(view, preempts=True))
