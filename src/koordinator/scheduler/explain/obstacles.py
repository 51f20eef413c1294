"""What each plugin has against a pod, over all nodes: the material of advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from koordinator.scheduler.engine.columns import Mask, Rows
from koordinator.scheduler.engine.decision import RuledOut
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.explain.judgement import Judgement

_ASKED: Final = 64
"""Nodes whose details are looked at."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One plugin that ruled nodes out."""

    plugin: str
    reasons: tuple[str, ...]
    """Of the last attempt, each once."""
    details: tuple[str, ...] = ()
    """What some of the nodes lack now, each once."""
    alone: Rows | None = None
    """The rows that nobody else keeps the pod off; None when that is unknown."""


def obstacles(ruled_out: Sequence[RuledOut], judgement: Judgement | None) -> list[Obstacle]:
    """The plugins of the last attempt; those first without which some node would take the pod."""
    reasons: dict[str, dict[str, None]] = {}
    for entry in ruled_out:
        reasons.setdefault(entry.plugin, {}).update(dict.fromkeys(entry.reasons))
    found = [_obstacle(plugin, tuple(texts), judgement) for plugin, texts in reasons.items()]
    return sorted(found, key=lambda each: -(0 if each.alone is None else each.alone.shape[0]))


def usable(judgement: Judgement, plugin: str) -> Mask:
    """Which of the judged rows the other plugins do not rule out for good: where room might be made for the pod."""
    mask = np.ones(judgement.rows.shape[0], dtype=np.bool_)
    for entry, codes in zip(judgement.plan.filters, judgement.codes, strict=True):
        if entry.plugin.name == plugin:
            continue
        for code in np.unique(codes[codes != FEASIBLE]).tolist():
            if any(reason.unresolvable for reason in entry.plugin.reasons(judgement.pod, entry.state, code)):
                mask &= codes != code
    return mask


def _obstacle(plugin: str, reasons: tuple[str, ...], judgement: Judgement | None) -> Obstacle:
    if judgement is None:
        return Obstacle(plugin, reasons)
    objects = judgement.against(plugin)
    alone = judgement.rows[objects & ((judgement.codes != FEASIBLE).sum(axis=0) == 1)]
    details = {
        lack.text: None
        for index in np.flatnonzero(objects)[:_ASKED].tolist()
        for objection in judgement.objections(index)
        if objection.plugin == plugin
        for lack in objection.lacks
    }
    return Obstacle(plugin, reasons, tuple(details), alone)
