"""Resctrl: a part of the level 3 cache and of the memory bandwidth for one pod, by its annotation.

The annotation ``node.koordinator.sh/resctrl`` names ranges of the cache and percentages of the bandwidth for all caches
and for single ones. A pod that has it gets a group ``koordlet-UID`` of resctrl, with its containers' tasks in it; the
group goes with the pod or with the annotation (pkg/koordlet/runtimehooks/hooks/resctrl, pkg/koordlet/util/resctrl).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.meta import WireStruct
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Explanation, Outcome, Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext, annotation
from koordinator.koordlet.enforce.hooks.registry import Hook, Stage
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.strategies.class_resctrl import bandwidth, ways
from koordinator.node.kernel_files import RESCTRL_GROUP, RESCTRL_SCHEMATA, Target
from koordinator.node.resctrl import CacheAllocation

OWNER: Final = "Resctrl"
PodEvent = tuple[Literal["Normal", "Warning"], str, str]
"""The type, reason and note of an event."""
TASKS_OWNER: Final = "Resctrl (tasks)"
_PREFIX: Final = "koordlet-"
_YOUNGEST: Final = 10.0
"""Seconds for which a group is left alone whose pod the kubelet has not listed yet."""
_WHERE: Final = f"metadata.annotations[{annotation_keys.RESCTRL}]"
_REASON: Final = f"the pod's annotation {annotation_keys.RESCTRL}"


class _Part(WireStruct):
    """From where to where of the cache, in percent, none where it is empty; or of the bandwidth, 0 for nothing said."""

    range: list[int] = []
    percent: int = 0


class _PartOfCache(_Part):
    cache_id: int = msgspec.field(default=0, name="cacheID")


class _Parts(WireStruct):
    schemata: _Part = _Part()
    schemata_per_cache: list[_PartOfCache] = []


class _Wanted(WireStruct):
    llc: _Parts = _Parts()
    mb: _Parts = _Parts()


def schemata(pod: PodContext, rules: Rules) -> list[DesiredSetting]:
    """What the pod's group may use. HookError if the annotation is not valid on this machine.

    Caches of which nothing is said, and a kind of which nothing is said, are not limited.
    """
    wanted, machine = annotation(pod, annotation_keys.RESCTRL, _Wanted), rules.caches
    if wanted is None or machine is None:
        return []
    parts = {"L3": _masks(wanted.llc, machine), "MB": _percentages(wanted.mb, machine)}
    group = pod_group(pod.uid)
    return [
        DesiredSetting(
            OWNER, Target(RESCTRL_SCHEMATA, group, part), tuple(sorted(shares.items())), _REASON, Priority.POD
        )
        for part, shares in parts.items()
    ]


def container(pod: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
    """The group for a container that is about to start: none that is not there, since the runtime would fail."""
    group = pod_group(pod.uid)
    if not _has_group(pod) or rules.caches is None or group not in rules.caches.groups:
        return None
    return Change(_REASON, Priority.POD, resctrl_group=group)


def task_group(pod: PodContext, rules: Rules) -> str | None:
    """Where the tasks of a running pod are to be: in its group, if it has one or is about to get it."""
    if not _has_group(pod) or rules.caches is None:
        return None
    group = pod_group(pod.uid)
    if group not in rules.caches.groups:
        try:
            schemata(pod, rules)
        except HookError:
            # The hook with the setting for the schemata reports it.
            return None
    return group


def event_of(pod: PodContext, rules: Rules, found: Explanation | None) -> PodEvent | None:
    """The event that a pod gets in a round; None if there is none.

    ``rules`` are those of the round, ``found`` what has become of the setting for ``tellable``.
    """
    if not _has_group(pod) or rules.caches is None or found is None:
        return None
    if found.outcome is Outcome.REFUSED:
        return "Warning", "ResctrlGroupRefused", f"{_WHERE}: {found.detail}"
    is_there = found.outcome in (Outcome.WRITTEN, Outcome.THERE_ALREADY)
    is_new = pod_group(pod.uid) not in rules.caches.groups
    return ("Normal", "Pod Level Resctrl", "Create Resctrl Group") if is_there and is_new else None


def tellable(pod: PodContext) -> Target:
    """What of a pod's group is looked at for its events."""
    return Target(RESCTRL_SCHEMATA, pod_group(pod.uid), "L3")


def unused_groups(pods: Sequence[PodContext], rules: Rules) -> list[DesiredSetting]:
    """Groups whose pods have ended or no longer have the annotation go: the CPUs know a dozen groups altogether.

    None is removed before the kubelet has listed its pods.
    """
    if rules.caches is None or not rules.knows_pods:
        return []
    used = {pod_group(pod.uid) for pod in pods if _has_group(pod)}
    return [
        _removal(group, "no pod of this node has this group")
        for group, made in sorted(rules.caches.groups.items())
        if group.startswith(_PREFIX) and group not in used and rules.now - made >= _YOUNGEST
    ]


def release(rules: Rules) -> list[DesiredSetting]:
    groups = rules.caches.groups if rules.caches is not None else {}
    return [_removal(group, "the gate Resctrl is off") for group in sorted(groups) if group.startswith(_PREFIX)]


def _removal(group: str, reason: str) -> DesiredSetting:
    return DesiredSetting(OWNER, Target(RESCTRL_GROUP, group), 0, reason, Priority.RELEASE)


def pod_group(uid: str) -> str:
    """The name of the group of a pod."""
    return f"{_PREFIX}{uid}"


def _has_group(pod: PodContext) -> bool:
    return bool(pod.annotations.get(annotation_keys.RESCTRL))


def _masks(wanted: _Parts, machine: CacheAllocation) -> dict[int, int]:
    def mask(part: _Part, where: str) -> int:
        found = ways(machine.ways_mask, part.range[0], part.range[1]) if len(part.range) == 2 else None
        if found is None:
            raise HookError(f"{_WHERE}: llc.{where}.range: {part.range} is not [START, END] with a way of the cache")
        return found

    return _by_cache("llc", wanted, mask, machine, None if wanted.schemata.range else machine.ways_mask)


def _percentages(wanted: _Parts, machine: CacheAllocation) -> dict[int, int]:
    def share(part: _Part, where: str) -> int:
        found = bandwidth(part.percent, machine.vendor)
        if found is None:
            raise HookError(f"{_WHERE}: mb.{where}.percent: {part.percent} is not in [1, 100]")
        return found

    whole = None if wanted.schemata.percent else bandwidth(100, machine.vendor)
    return _by_cache("mb", wanted, share, machine, whole)


def _by_cache(
    kind: str, wanted: _Parts, share: Callable[[_Part, str], int], machine: CacheAllocation, everything: int | None
) -> dict[int, int]:
    """``everything`` for all caches where nothing is said of them, and the shares of single ones."""
    shares = dict.fromkeys(machine.caches, share(wanted.schemata, "schemata") if everything is None else everything)
    for number, part in enumerate(wanted.schemata_per_cache):
        where = f"schemataPerCache[{number}]"
        if part.cache_id not in machine.caches:
            caches = ", ".join(map(str, machine.caches))
            raise HookError(f"{_WHERE}: {kind}.{where}.cacheID: {part.cache_id} is none of the caches {caches}")
        shares[part.cache_id] = share(part, where)
    return shares


HOOK: Final = Hook(
    OWNER,
    features.RESCTRL,
    frozenset({Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER}),
    container=container,
    of_pod=schemata,
    of_pods=unused_groups,
)
TASKS_HOOK: Final = Hook(TASKS_OWNER, features.RESCTRL, is_of_processes=True, task_group=task_group)
RELEASING: Final = Hook(OWNER, features.RESCTRL, of_pods=lambda _, rules: release(rules))
