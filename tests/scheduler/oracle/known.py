"""What a scheduler knows of a cluster, in the form of ``expected``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from koordinator.api.elastic_quota import SYSTEM_QUOTA
from koordinator.model.cpu_allocation.topology import cpus_of
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.device_share.allocation import amounts_held
from koordinator.scheduler.plugins.device_share.plugin import DeviceShare
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from koordinator.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from koordinator.scheduler.plugins.node_ports import NodePorts
from koordinator.scheduler.program import Scheduler
from tests.scheduler.oracle.expected import Facts, Held, NodeFacts, ReservationFacts


def profile_of(scheduler: Scheduler) -> Profile:
    return scheduler.engines["koord-scheduler"].profile


def assumed_pods(scheduler: Scheduler) -> dict[str, Held]:
    """What the pods hold that no record of the API shows on a node yet, by uid."""
    state, found = scheduler.state, dict[str, Held]()
    for uid, placed in state._placed.items():
        if not placed.assumed:
            continue
        held = found[uid] = Held(placed.node_name, placed.pod.pod)
        of = state.view.allocations.of
        if (use := of("Reservation", uid)) is not None and hasattr(use, "uid"):
            held.reservation = use.uid
        if (devices := of("DeviceShare", uid)) is not None:
            held.devices = amounts_held(devices)
        if (cpus := of("NodeNUMAResource", uid)) is not None:
            held.cpus = frozenset(cpus_of(cpus.cpus))
    return found


def known_facts(scheduler: Scheduler) -> Facts:
    profile, rows = profile_of(scheduler), scheduler.state.view.columns.row_of
    facts = Facts(nodes={name: _node(scheduler, row) for name, row in rows.items()})
    view = scheduler.state.view
    for uid, booking in view.shared["Reservation"].bookings.items():
        kept = {name: amount for name, amount in booking.remaining.items() if amount}
        facts.reservations[uid] = ReservationFacts(booking.node_name, Counter(kept), set(booking.users))
    quotas, gangs = profile.plugins["ElasticQuota"], profile.plugins["Coscheduling"]
    assert isinstance(quotas, ElasticQuota)
    assert isinstance(gangs, Coscheduling)
    for quota, node in quotas.accounts.forest.nodes.items():
        request, used = Counter(node.own.request), dict(node.total.used)
        for child in node.children:
            request.update(child.own.request)
        if quota != SYSTEM_QUOTA:
            facts.quotas[quota] = _without_zeros(request), _without_zeros(used)
    for id_, gang in gangs.gangs.cache.gangs.items():
        members = {member.pod.metadata.name for member in gang.members.values()}
        bound = {member.pod.metadata.name for member in gang.by_state[MemberState.BOUND].values()}
        if members:
            facts.gangs[id_] = members, bound
    return facts


def _node(scheduler: Scheduler, row: int) -> NodeFacts:
    view, plugins = scheduler.state.view, profile_of(scheduler).plugins
    columns = view.columns

    def amounts(column: Any) -> dict[str, int]:
        # As arrays and as integers, which are two forms of the same.
        return {name: int(column[row, index]) for name, index in columns.resources.column_of.items()}

    requested, allocatable = amounts(columns.requested), amounts(columns.allocatable)
    by_name = columns.numbers[row].by_name()
    for name, amount in requested.items():
        assert by_name[name] == (amount, allocatable[name])
    unoffered = {name: amount for name, (amount, _) in by_name.items() if name not in requested}
    found = NodeFacts(
        {name: amount for name, amount in allocatable.items() if amount},
        Counter({name: amount for name, amount in {**requested, **unoffered}.items() if amount}),
    )
    cpu, memory = columns.numbers[row].counted[:2]
    found.non_zero = +Counter({"cpu": cpu, "memory": memory})
    found.pods = set(view.pods_on[row])
    devices, cpus, ports = plugins["DeviceShare"], plugins["NodeNUMAResource"], plugins["NodePorts"]
    assert isinstance(devices, DeviceShare)
    assert isinstance(cpus, NodeNUMAResource)
    assert isinstance(ports, NodePorts)
    if (there := devices.nodes.get(row)) is not None:
        found.devices = {
            (device_type, minor): Counter(used)
            for device_type, minors in there.used.items()
            for minor, used in minors.items()
        }
    if (state := cpus.nodes.get(row)) is not None:
        found.cpus = Counter(state.counts)
    for (_, port), users in ports._used.items():
        found.ports[port] += sum(count for (there, _), count in users.items() if there == row)
    found.ports = +found.ports
    for group in _label_groups(scheduler, row):
        found.labels.update(group)
    return found


def _label_groups(scheduler: Scheduler, row: int) -> list[Counter[str]]:
    labels = scheduler.state.view.labels
    return [
        Counter({labels.group(number).labels.get("app", ""): count}) for number, count in labels.on_row(row).items()
    ]


def _without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
