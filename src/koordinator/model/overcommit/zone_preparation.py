"""What is to be written on a NodeResourceTopology: batch resources of its zones, and whether it is due.

The patch is a JSON patch that first tests what it rests on: zones and resources are lists, of which a merge patch
would replace all, with whatever others have written there since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from koordinator.api.node_resource_topology import NodeResourceTopology, ResourceInfo, Zone
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.model.overcommit.amounts import is_different
from koordinator.model.overcommit.batch import BATCH_RESOURCES
from koordinator.model.overcommit.decision import Plan
from koordinator.model.overcommit.explained_sum import NORMALIZATION, Addend, ExplainedAmount, published
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.overcommit.preparation import is_expired, normalized, quantity_of

_FIELDS = ("capacity", "allocatable", "available")
_ZERO = Quantity(0)


@dataclass(frozen=True, slots=True)
class ZoneChanges:
    due: str = ""
    """Why zones are to be written, or to be taken for written when nothing differs; empty: they are not."""
    operations: tuple[dict[str, Any], ...] = ()
    """A JSON patch; empty when there is nothing to write."""


def prepare_zones(
    topology: NodeResourceTopology, plan: Plan, policy: CapacityPolicy, now: datetime, last_sync: datetime | None
) -> ZoneChanges:
    """Compare a plan with the zones as stored. A zone that the plan has no amounts for offers nothing."""
    if not any(amount.resource in BATCH_RESOURCES for amount in plan.amounts):
        return ZoneChanges()
    planned = {batch.zone: _quantities(batch.cpu.value, batch.memory.value, plan) for batch in plan.zones}
    operations: list[dict[str, Any]] = []
    due = ""
    for place, zone in enumerate(topology.zones):
        wanted = planned.get(zone.name) or _zeros(zone)
        due = due or _due(zone, wanted, 0.0 if zone.name not in planned else policy.resource_diff_threshold)
        operations += _operations(place, zone, wanted)
    if not due and is_expired(last_sync, policy, now):
        due = f"zones were last written more than {policy.update_time_threshold_seconds} seconds ago, or never"
    return ZoneChanges(due, tuple(operations) if due else ())


def zone_amounts(plan: Plan) -> tuple[ExplainedAmount, ...]:
    """What each zone offers, as it stands there after adjustments."""
    amounts: list[ExplainedAmount] = []
    for batch in plan.zones:
        step = Addend(NORMALIZATION, normalized(batch.cpu.value, plan) - batch.cpu.value)
        amounts += [published(batch.cpu, (step,)), published(batch.memory, ())]
    return tuple(amounts)


def _quantities(cpu: int, memory: int, plan: Plan) -> dict[str, Quantity]:
    return {
        BATCH_CPU: quantity_of(BATCH_CPU, normalized(cpu, plan)),
        BATCH_MEMORY: quantity_of(BATCH_MEMORY, memory),
    }


def _zeros(zone: Zone) -> dict[str, Quantity]:
    return {info.name: _ZERO for info in zone.resources if info.name in BATCH_RESOURCES}


def _due(zone: Zone, wanted: Mapping[str, Quantity], threshold: float) -> str:
    stored = {info.name: info for info in zone.resources}
    for name, amount in wanted.items():
        info = stored.get(name)
        if info is None or any(is_different(getattr(info, field), amount, threshold) for field in _FIELDS):
            return f"{name} of zone {zone.name} differs by more than {threshold:g} of what is stored"
    return ""


def _operations(place: int, zone: Zone, wanted: Mapping[str, Quantity]) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    root = f"/zones/{place}/resources"
    places = {info.name: index for index, info in enumerate(zone.resources)}
    for name, amount in wanted.items():
        if name not in places:
            continue
        info, path = zone.resources[places[name]], f"{root}/{places[name]}"
        fields = [field for field in _FIELDS if getattr(info, field) != amount]
        if fields:
            tests.append({"op": "test", "path": f"{path}/name", "value": name})
            changes += [{"op": "add", "path": f"{path}/{field}", "value": str(amount)} for field in fields]
    # From the last place to the first, so that what is put in shifts nothing that is still to come.
    missing = sorted((name for name in wanted if name not in places), reverse=True)
    if missing and not zone.resources:
        entries = [_entry(name, wanted[name]) for name in reversed(missing)]
        changes.append({"op": "add", "path": root, "value": entries})
    elif missing:
        changes += [
            {"op": "add", "path": f"{root}/{_place_for(name, zone.resources)}", "value": _entry(name, wanted[name])}
            for name in missing
        ]
    if not changes:
        return []
    return [{"op": "test", "path": f"/zones/{place}/name", "value": zone.name}, *tests, *changes]


def _place_for(name: str, resources: Sequence[ResourceInfo]) -> int:
    """Where a name goes in a list that is sorted by name."""
    return next((index for index, info in enumerate(resources) if info.name > name), len(resources))


def _entry(name: str, amount: Quantity) -> dict[str, str]:
    return {"name": name, **dict.fromkeys(_FIELDS, str(amount))}
