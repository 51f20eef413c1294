"""What a cycle would do if it began now, and why all other pods stay: the plans of all plugins, not carried out.

Plugins plan on copies of what they remember between cycles, and evictions count towards limits of their own, so that
a rehearsal changes nothing about the next cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.pod import Pod
from koordinator.descheduler.cycle import TOO_SMALL, of_profile, without
from koordinator.descheduler.framework import Cordon, DeletionCost, Eviction, Plan, Remark, Snapshot, Step
from koordinator.descheduler.runtime import EvictionLimiter, Profile

NOT_CHOSEN: Final = "no plugin would have it leave its node"
_REASONS: Final = 50
"""Different reasons of pods that stay that are listed; the rarest are added up."""
_EXAMPLES: Final = 3


@dataclass(slots=True)
class _Rehearsed:
    """What has been proposed so far."""

    evictions: list[dict[str, str]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    others: list[dict[str, str]] = field(default_factory=list)
    remarks: list[dict[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)
    """Their uids."""


class Rehearsal:
    """``make_limiter`` gives a limiter with the limits of a cycle, all of them unused."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        make_limiter: Callable[[], EvictionLimiter],
        take_snapshot: Callable[[], Snapshot],
    ) -> None:
        self._profiles = profiles
        self._make_limiter = make_limiter
        self._take_snapshot = take_snapshot

    async def run(self) -> dict[str, Any]:
        """The explanation as a JSON document. Gives others the processor where plugins let it."""
        snapshot, limiter, found = self._take_snapshot(), self._make_limiter(), _Rehearsed()
        if len(snapshot.nodes) <= 1:
            found.errors.append(TOO_SMALL)
        else:
            for profile in self._profiles:
                for deschedule in profile.deschedule:
                    plan = deschedule.rehearsing().deschedule(of_profile(snapshot, profile))
                    await _run_plan(plan, profile, deschedule.name, limiter, found)
            rest = without(snapshot, found.leaving)
            for profile in self._profiles:
                for balance in profile.balance:
                    plan = balance.rehearsing().balance(of_profile(rest, profile))
                    await _run_plan(plan, profile, balance.name, limiter, found)
        return {
            "rebalance": ", ".join(profile.name for profile in self._profiles),
            "nodes": len(snapshot.nodes),
            "pods": sum(len(snapshot.pods_on(node.metadata.name)) for node in snapshot.nodes),
            "evictions": found.evictions,
            "refused": found.refused,
            "others": found.others,
            "remarks": found.remarks,
            "errors": found.errors,
            "stays": await self._who_stays(snapshot, found),
        }

    async def _who_stays(self, snapshot: Snapshot, found: _Rehearsed) -> list[dict[str, Any]]:
        """By reason, the commonest first: how many pods stay for it, and some of them."""
        refused = {each["uid"]: each["why"] for each in found.refused}
        pods: dict[str, list[str]] = {}
        for node in snapshot.nodes:
            profile = next((each for each in self._profiles if each.looks_at(node)), None)
            for pod in snapshot.pods_on(node.metadata.name):
                uid = pod.metadata.uid
                if uid not in found.leaving:
                    why = refused.get(uid) or _why_protected(profile, pod) or NOT_CHOSEN
                    pods.setdefault(why, []).append(pod.metadata.key)
            await asyncio.sleep(0)
        return list(_by_reason(pods))


async def _run_plan(plan: Plan, profile: Profile, plugin: str, limiter: EvictionLimiter, found: _Rehearsed) -> None:
    try:
        step = next(plan)
        while True:
            if isinstance(step, Remark):
                await asyncio.sleep(0)
            step = plan.send(_take(step, profile, plugin, limiter, found))
    except StopIteration:
        return
    except Exception as error:
        # As in a cycle: a plugin that fails does not end the others.
        found.errors.append(f"{plugin}: {type(error).__name__}: {error}")
    finally:
        plan.close()


def _take(step: Step, profile: Profile, plugin: str, limiter: EvictionLimiter, found: _Rehearsed) -> bool:
    match step:
        case Remark(text):
            if text:
                found.remarks.append({"profile": profile.name, "plugin": plugin, "text": text})
        case Cordon(node, unschedulable, reason):
            what = f"{'cordon' if unschedulable else 'uncordon'} node {node}"
            found.others.append({"plugin": plugin, "what": what, "reason": reason})
        case DeletionCost(pod, cost, reason):
            what = f"set the deletion cost of pod {pod.metadata.key} to {cost}"
            found.others.append({"plugin": plugin, "what": what, "reason": reason})
        case Eviction(pod, reason):
            return _evict(pod, reason, profile, plugin, limiter, found)
    return True


def _evict(pod: Pod, reason: str, profile: Profile, plugin: str, limiter: EvictionLimiter, found: _Rehearsed) -> bool:
    about = {"uid": pod.metadata.uid, "pod": pod.metadata.key, "node": pod.spec.node_name, "plugin": plugin}
    why = "the pod is terminating" if pod.metadata.deletion_timestamp is not None else _why_protected(profile, pod)
    if not why and pod.metadata.uid in found.leaving:
        why = "it would have been evicted already"
    why = why or limiter.refusal(pod)
    if why:
        found.refused.append({**about, "why": why, "reason": reason})
        return False
    limiter.done(pod)
    found.leaving.add(pod.metadata.uid)
    found.evictions.append({**about, "profile": profile.name, "reason": reason})
    return True


def _why_protected(profile: Profile | None, pod: Pod) -> str:
    return "; ".join(profile.evictor.filter(pod)) if profile is not None else "no profile looks at its node"


def _by_reason(pods: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    ranked = sorted(pods.items(), key=lambda item: (-len(item[1]), item[0]))
    for why, names in ranked[:_REASONS]:
        yield {"why": why, "pods": len(names), "examples": names[:_EXAMPLES]}
    if rare := ranked[_REASONS:]:
        names = [name for _, each in rare for name in each]
        yield {"why": f"{len(rare)} other reasons", "pods": len(names), "examples": names[:_EXAMPLES]}
