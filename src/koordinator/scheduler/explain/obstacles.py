"""What each plugin has against a pod, over all nodes: the material of advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from koordinator.scheduler.engine.columns import Mask, Rows
from koordinator.scheduler.engine.decision import RejectedNodes
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.explain.filter_results import FilterResults

_ASKED: Final = 64
"""Nodes whose details are looked at."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One plugin that rejected nodes."""

    plugin: str
    reasons: tuple[str, ...]
    """Of the last attempt, each once."""
    details: tuple[str, ...] = ()
    """What some of the nodes lack now, each once."""
    alone: Rows | None = None
    """The rows that nobody else keeps the pod off; None when that is unknown."""


def obstacles(rejected: Sequence[RejectedNodes], filter_results: FilterResults | None) -> list[Obstacle]:
    """The plugins of the last attempt; those first without which some node would take the pod."""
    reasons: dict[str, dict[str, None]] = {}
    for entry in rejected:
        reasons.setdefault(entry.plugin, {}).update(dict.fromkeys(entry.reasons))
    found = [_obstacle(plugin, tuple(texts), filter_results) for plugin, texts in reasons.items()]
    return sorted(found, key=lambda each: -(0 if each.alone is None else each.alone.shape[0]))


def usable(filter_results: FilterResults, plugin: str) -> Mask:
    """Which of the evaluated rows the other plugins do not reject for good: where room might be made for the pod."""
    mask = np.ones(filter_results.rows.shape[0], dtype=np.bool_)
    for entry, codes in zip(filter_results.plan.filters, filter_results.codes, strict=True):
        if entry.plugin.name == plugin:
            continue
        for code in np.unique(codes[codes != FEASIBLE]).tolist():
            if any(reason.unresolvable for reason in entry.plugin.reasons(filter_results.pod, entry.state, code)):
                mask &= codes != code
    return mask


def _obstacle(plugin: str, reasons: tuple[str, ...], filter_results: FilterResults | None) -> Obstacle:
    if filter_results is None:
        return Obstacle(plugin, reasons)
    objects = filter_results.against(plugin)
    alone = filter_results.rows[objects & ((filter_results.codes != FEASIBLE).sum(axis=0) == 1)]
    details = {
        lack.text: None
        for index in np.flatnonzero(objects)[:_ASKED].tolist()
        for objection in filter_results.objections(index)
        if objection.plugin == plugin
        for lack in objection.lacks
    }
    return Obstacle(plugin, reasons, tuple(details), alone)
