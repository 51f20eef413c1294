"""All plugins' verdicts on nodes for one pod, as of now. Decisions need only the first plugin that says no."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from koordinator.scheduler.engine.adjustment import adjusted
from koordinator.scheduler.engine.class_plan import ClassPlan, PlannedFilter, plan_class
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.framework import FEASIBLE, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack


@dataclass(frozen=True, slots=True)
class Objection:
    """One plugin does not let the pod on one node."""

    plugin: str
    reasons: tuple[Reason, ...]
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``codes`` has the shape (filters, rows)."""

    plan: ClassPlan
    pod: PodInfo
    rows: Rows
    codes: Ints

    def objections(self, index: int) -> tuple[Objection, ...]:
        """Every plugin that rules out ``rows[index]``, in the order of the profile."""
        row = int(self.rows[index])
        return tuple(
            _objection(entry, self.pod, code, row)
            for entry, code in zip(self.plan.filters, self.codes[:, index].tolist(), strict=True)
            if code != FEASIBLE
        )


def judge(profile: Profile, view: ClusterView, pod: PodInfo, rows: Sequence[int] | None = None) -> Judgement:
    """Ask all Filter plugins about ``rows`` (None: all nodes that PreFilter leaves). Changes nothing. What a plugin
    raises comes out."""
    plan = plan_class(profile, pod)
    judged = plan.pod or pod
    if rows is None:
        names = view.columns.row_of if plan.restricted_to is None else plan.restricted_to & view.columns.row_of.keys()
        rows = sorted(view.columns.row_of[name] for name in names)
    array = np.array(rows if plan.rejection is None else (), dtype=np.intp)
    codes = np.zeros((len(plan.filters), array.shape[0]), dtype=np.int64)
    if array.shape[0]:
        with ExitStack() as seen:
            for transformer in profile.filter_transformers:
                seen.enter_context(adjusted(view.columns, transformer.before_filter(judged, array)))
            for index, entry in enumerate(plan.filters):
                codes[index] = entry.plugin.filter(judged, entry.state, array)
    return Judgement(plan, judged, array, codes)


def _objection(entry: PlannedFilter, pod: PodInfo, code: int, row: int) -> Objection:
    plugin = entry.plugin
    lacks = plugin.lacks(pod, entry.state, code, row) if isinstance(plugin, Explainer) else ()
    return Objection(plugin.name, tuple(plugin.reasons(pod, entry.state, code)), tuple(lacks))
