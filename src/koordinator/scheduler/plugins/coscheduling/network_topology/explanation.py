"""The network part of ``koord explain gang``: which domain was chosen for the gang, or why none was."""

from __future__ import annotations

from collections import Counter
from typing import Final

from koordinator.api.explanations import DomainSlots, NetworkPlace
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import ClusterTopology
from koordinator.scheduler.plugins.coscheduling.network_topology.planner import TopologyPlan

_SHOWN: Final = 10


def explain_network(topology: ClusterTopology | None, plan: TopologyPlan | None, *, heeded: bool) -> NetworkPlace:
    """Explain a gang with network topology requirements. ``topology`` is None if the scheduler does not watch the
    network; ``heeded``: whether the profile respects such requirements. If no domain has enough slots, ``domainSlots``
    has the number of each."""
    sentences = [*_why_unknown(topology, heeded=heeded)]
    if heeded and plan is not None:
        sentences += _of_plan(plan)
    elif not sentences:
        sentences.append("No attempt has been made to find it yet.")
    domain_slots = plan.domain_slots if heeded and plan is not None and plan.refusal else ()
    return NetworkPlace(
        domain=plan.domain if plan is not None else "",
        wanted=plan.wanted if plan is not None else None,
        sentences=sentences,
        domain_slots=[DomainSlots(domain=slots.domain, slots=slots.slots) for slots in domain_slots],
        more_domains=plan.domains - len(domain_slots) if plan is not None and domain_slots else 0,
    )


def _why_unknown(topology: ClusterTopology | None, *, heeded: bool) -> list[str]:
    if not heeded:
        return ["It is not heeded: awareNetworkTopology is false in the CoschedulingArgs of the profile."]
    if topology is None:
        return ["The network is not known: koord-scheduler runs without --enable-network-topology-manager."]
    if topology.problem:
        kept = "" if topology.tree is None else "; the layers that it had before count"
        return [f"The ClusterNetworkTopology default cannot be used: {topology.problem}{kept}."]
    return ["There is no ClusterNetworkTopology named default."] if topology.tree is None else []


def _of_plan(plan: TopologyPlan) -> list[str]:
    demand = plan.demand
    found = [
        f"The number of members in each domain of {layer} must be a multiple of {multiple}."
        for layer, multiple in sorted(demand.multiples.items())
    ]
    if plan.domain:
        counts = sorted(Counter(plan.nodes.values()).items())
        nodes = ", ".join(f"{count} on {node}" for node, count in counts[:_SHOWN])
        more = f" and {len(counts) - _SHOWN} nodes more" if len(counts) > _SHOWN else ""
        where = "the whole network" if plan.domain == f"{plan.layers[0]}/" else plan.domain
        found.append(f"The smallest domain that can take all {plan.wanted} members is {where}: {nodes}{more}.")
    elif demand.gather_in and demand.gather_in not in plan.layers:
        found.append(
            f"All members must be gathered in one domain of {demand.gather_in}, which is not a layer of the network: "
            f"{', '.join(plan.layers)}."
        )
    elif demand.gather_in and demand.gather_in != plan.layers[0]:
        found.append(f"No domain of {demand.gather_in} can take all {plan.wanted} members.")
    else:
        found.append(f"The whole network cannot take all {plan.wanted} members.")
    if plan.left_out:
        found.append(f"Nodes that are in no domain take no members: {'; '.join(plan.left_out[:3])}.")
    return found
