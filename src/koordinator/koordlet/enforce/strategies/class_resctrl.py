"""Cache and memory bandwidth by class: groups LSR, LS and BE of resctrl, and the tasks of each class in its group.

Part of the level 3 cache, as a mask of ways from a start to an end in percent, and a share of the memory bandwidth
(pkg/koordlet/qosmanager/plugins/resctrl). A class that is switched off has the whole of both: its tasks stay where they
are, which limits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.resource_qos import ResctrlQoS
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.qos_classes import CLASS_NAMES, qos_classes
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot
from koordinator.node.kernel_files import RESCTRL_SCHEMATA, RESCTRL_TASKS, Target
from koordinator.node.resctrl import CacheAllocation

OWNER: Final = "RdtResctrl"
AMD: Final = "AuthenticAMD"
_AMD_UNLIMITED: Final = 2048
_AMD_SCALE: Final = 160
GROUP_NAMES: Final = frozenset(CLASS_NAMES.values())


def decide(
    snapshot: Snapshot,
    resctrl: CacheAllocation | None,
    tasks: Mapping[str, frozenset[int]],
    *,
    is_enabled: bool = True,
) -> Decision:
    """Schemata of the groups, and which ``tasks``, by the UID of their pod, belong to each. ``resctrl`` is None where
    the machine has none. With the gate off, groups that are there get the whole of both, and none is made."""
    if resctrl is None or not (classes := qos_classes(snapshot.resource_qos)):
        return Decision(None, "the NodeSLO is not known, or the machine has no resctrl")
    if not is_enabled:
        released = [
            setting
            for group in sorted(GROUP_NAMES & resctrl.groups.keys())
            for setting in _schemata(group, None, resctrl)
        ]
        return Decision(tuple(released), "the gate RdtResctrl is off")
    settings: list[DesiredSetting] = []
    switched_on: set[str] = set()
    for group, class_ in classes.items():
        config = class_.resctrl_qos
        if config is not None and config.enable:
            switched_on.add(group)
        settings += _schemata(group, config, resctrl)
    for group in sorted(switched_on):
        of_group = frozenset(
            task
            for usage in snapshot.pods
            if CLASS_NAMES.get(usage.pod.qos_with_default) == group
            and annotation_keys.RESCTRL not in usage.pod.pod.metadata.annotations
            for task in tasks.get(usage.pod.uid, ())
        )
        if of_group:
            settings.append(DesiredSetting(OWNER, Target(RESCTRL_TASKS, group), of_group, f"pods of the class {group}"))
    return Decision(tuple(settings), "the NodeSLO's resctrlQOS")


def _schemata(group: str, config: ResctrlQoS | None, resctrl: CacheAllocation) -> list[DesiredSetting]:
    given = config or ResctrlQoS()
    start = given.cat_range_start_percent or 0
    end = 100 if given.cat_range_end_percent is None else given.cat_range_end_percent
    percent = 100 if given.mba_percent is None else given.mba_percent
    priority = Priority.RELEASE if config is None else Priority.POLICY
    reason = f"{start} to {end} percent of the cache, {percent} percent of the bandwidth"
    settings: list[DesiredSetting] = []
    for part, share in (("L3", ways(resctrl.ways_mask, start, end)), ("MB", bandwidth(percent, resctrl.vendor))):
        if share is not None:
            value = tuple((cache, share) for cache in sorted(resctrl.caches))
            settings.append(DesiredSetting(OWNER, Target(RESCTRL_SCHEMATA, group, part), value, reason, priority))
    return settings


def ways(mask: int, start: int, end: int) -> int | None:
    """The ways from ``start`` to ``end`` percent as a mask; None where that is no range of a mask of low ones."""
    count = mask.bit_length()
    if mask <= 0 or mask != (1 << count) - 1 or not 0 <= start < end <= 100:
        return None
    return ((1 << math.ceil(count * end / 100)) - (1 << math.ceil(count * start / 100))) or None


def bandwidth(percent: int, vendor: str) -> int | None:
    """In the unit of the CPU's vendor; None where it is no percentage."""
    if not 0 < percent <= 100:
        return None
    if vendor == AMD:
        return _AMD_UNLIMITED if percent == 100 else max(_AMD_SCALE * percent // 100, 1)
    return -(-percent // 10) * 10
