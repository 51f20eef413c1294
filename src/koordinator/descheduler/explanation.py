"""What a cycle would do if it began now, and why all other pods stay."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from koordinator.api import rebalance_explanation
from koordinator.api.pod import Pod
from koordinator.api.rebalance_explanation import (
    PlannedChange,
    PlannedEviction,
    PluginRemark,
    RebalanceExplanation,
    StayingPods,
)
from koordinator.descheduler.cycle import Cycle, CycleReport, Outcome
from koordinator.descheduler.framework import Cordon, DeletionCost, Eviction, HotNode, Remark
from koordinator.descheduler.profiles import Profile

NOT_CHOSEN: Final = "no plugin would have it leave its node"
_REASONS: Final = 50
"""Different reasons of pods that stay that are listed; the rarest are added up."""
_EXAMPLES: Final = 3


async def explain(cycle: Cycle) -> RebalanceExplanation:
    """Gives others the processor where plugins let it."""
    rehearsed = cycle.rehearsed()
    report = await rehearsed.run()
    snapshot, profiles = report.snapshot, rehearsed.profiles
    document = RebalanceExplanation(
        rebalance=", ".join(profile.name for profile in profiles),
        nodes=len(snapshot.nodes),
        pods=sum(len(snapshot.pods_on(node.metadata.name)) for node in snapshot.nodes),
        errors=report.errors,
        stays=await _who_stays(report, profiles),
    )
    for outcome in report.outcomes:
        _add(document, outcome)
    return document


def _add(document: RebalanceExplanation, outcome: Outcome) -> None:
    profile, plugin = outcome.profile, outcome.plugin
    match outcome.step:
        case Remark(text):
            if text:
                document.remarks.append(PluginRemark(profile=profile, plugin=plugin, text=text))
        case HotNode() as hot:
            document.hot.append(
                rebalance_explanation.HotNode(
                    profile=profile,
                    plugin=plugin,
                    node=hot.node,
                    pool=hot.pool,
                    pods=hot.pods,
                    usage=_rounded(hot.usage),
                    thresholds=_rounded(hot.thresholds),
                    cycles=hot.cycles,
                    needed=hot.needed,
                    confirmed=hot.is_confirmed,
                )
            )
        case Cordon(node, unschedulable, reason):
            what = f"{'cordon' if unschedulable else 'uncordon'} node {node}"
            document.others.append(PlannedChange(plugin=plugin, what=what, reason=reason))
        case DeletionCost(pod, cost, reason):
            what = f"set the deletion cost of pod {pod.metadata.key} to {cost}"
            document.others.append(PlannedChange(plugin=plugin, what=what, reason=reason))
        case Eviction(pod, reason, dry_run=True) if not outcome.refusal:
            what = f"say that it would evict pod {pod.metadata.key}, by its argument dryRun"
            document.others.append(PlannedChange(plugin=plugin, what=what, reason=reason))
        case Eviction(pod, reason):
            planned = PlannedEviction(
                uid=pod.metadata.uid,
                pod=pod.metadata.key,
                node=pod.spec.node_name,
                profile=profile,
                plugin=plugin,
                reason=reason,
                why=outcome.refusal or None,
            )
            (document.refused if outcome.refusal else document.evictions).append(planned)


def _rounded(percents: Mapping[str, float]) -> dict[str, float]:
    return {name: round(percent, 2) for name, percent in percents.items()}


async def _who_stays(report: CycleReport, profiles: Sequence[Profile]) -> list[StayingPods]:
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


def _by_reason(pods: dict[str, list[str]]) -> Iterator[StayingPods]:
    ranked = sorted(pods.items(), key=lambda item: (-len(item[1]), item[0]))
    for why, names in ranked[:_REASONS]:
        yield StayingPods(why=why, pods=len(names), examples=names[:_EXAMPLES])
    if rare := ranked[_REASONS:]:
        names = [name for _, each in rare for name in each]
        yield StayingPods(why=f"{len(rare)} other reasons", pods=len(names), examples=names[:_EXAMPLES])
