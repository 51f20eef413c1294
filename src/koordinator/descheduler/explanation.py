"""What a cycle would do if it began now, and why all other pods stay, as a document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from koordinator.api.pod import Pod
from koordinator.descheduler.cycle import Cycle, CycleReport, Outcome
from koordinator.descheduler.framework import Cordon, DeletionCost, Eviction, HotNode, Remark
from koordinator.descheduler.profiles import Profile

NOT_CHOSEN: Final = "no plugin would have it leave its node"
_REASONS: Final = 50
"""Different reasons of pods that stay that are listed; the rarest are added up."""
_EXAMPLES: Final = 3


async def explain(cycle: Cycle) -> dict[str, Any]:
    """The explanation as a JSON document. Gives others the processor where plugins let it."""
    rehearsed = cycle.rehearsed()
    report = await rehearsed.run()
    snapshot, profiles = report.snapshot, rehearsed.profiles
    document: dict[str, Any] = {
        "rebalance": ", ".join(profile.name for profile in profiles),
        "nodes": len(snapshot.nodes),
        "pods": sum(len(snapshot.pods_on(node.metadata.name)) for node in snapshot.nodes),
        "hot": [],
        "evictions": [],
        "refused": [],
        "others": [],
        "remarks": [],
        "errors": report.errors,
    }
    for outcome in report.outcomes:
        _add(document, outcome)
    return {**document, "stays": await _who_stays(report, profiles)}


def _add(document: dict[str, Any], outcome: Outcome) -> None:
    plugin = outcome.plugin
    match outcome.step:
        case Remark(text):
            if text:
                document["remarks"].append({"profile": outcome.profile, "plugin": plugin, "text": text})
        case HotNode() as hot:
            document["hot"].append(
                {
                    "profile": outcome.profile,
                    "plugin": plugin,
                    "node": hot.node,
                    "pool": hot.pool,
                    "pods": hot.pods,
                    "usage": {name: round(used, 2) for name, used in hot.usage.items()},
                    "thresholds": {name: round(most, 2) for name, most in hot.thresholds.items()},
                    "cycles": hot.cycles,
                    "needed": hot.needed,
                    "confirmed": hot.is_confirmed,
                }
            )
        case Cordon(node, unschedulable, reason):
            what = f"{'cordon' if unschedulable else 'uncordon'} node {node}"
            document["others"].append({"plugin": plugin, "what": what, "reason": reason})
        case DeletionCost(pod, cost, reason):
            what = f"set the deletion cost of pod {pod.metadata.key} to {cost}"
            document["others"].append({"plugin": plugin, "what": what, "reason": reason})
        case Eviction(pod, reason, dry_run=True) if not outcome.refusal:
            what = f"say that it would evict pod {pod.metadata.key}, by its argument dryRun"
            document["others"].append({"plugin": plugin, "what": what, "reason": reason})
        case Eviction(pod, reason):
            about = {"uid": pod.metadata.uid, "pod": pod.metadata.key, "node": pod.spec.node_name, "plugin": plugin}
            if outcome.refusal:
                document["refused"].append({**about, "why": outcome.refusal, "reason": reason})
            else:
                document["evictions"].append({**about, "profile": outcome.profile, "reason": reason})


async def _who_stays(report: CycleReport, profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """By reason, the commonest first: how many pods stay for it, and some of them."""
    refused = {each.step.pod.metadata.uid: each.refusal for each in report.refused if isinstance(each.step, Eviction)}
    pods: dict[str, list[str]] = {}
    for node in report.snapshot.nodes:
        profile = next((each for each in profiles if each.looks_at(node)), None)
        for pod in report.snapshot.pods_on(node.metadata.name):
            uid = pod.metadata.uid
            if uid not in report.evicted:
                why = refused.get(uid) or _why_protected(profile, pod) or NOT_CHOSEN
                pods.setdefault(why, []).append(pod.metadata.key)
        await asyncio.sleep(0)
    return list(_by_reason(pods))


def _why_protected(profile: Profile | None, pod: Pod) -> str:
    return "; ".join(profile.evictor.filter(pod)) if profile is not None else "no profile looks at its node"


def _by_reason(pods: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    ranked = sorted(pods.items(), key=lambda item: (-len(item[1]), item[0]))
    for why, names in ranked[:_REASONS]:
        yield {"why": why, "pods": len(names), "examples": names[:_EXAMPLES]}
    if rare := ranked[_REASONS:]:
        names = [name for _, each in rare for name in each]
        yield {"why": f"{len(rare)} other reasons", "pods": len(names), "examples": names[:_EXAMPLES]}
