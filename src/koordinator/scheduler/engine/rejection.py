"""Turns the filter results of all nodes into a Rejection: counts, examples, the message and the events that may
help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Final

from koordinator.scheduler.engine.binding_points import CyclePreFilterPlugin
from koordinator.scheduler.engine.decision import (
    NO_NODES,
    RejectedNodes,
    Rejection,
    fit_error,
    pre_filter_error,
    restricted_text,
)
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.failed_attempt import Attempt, RowCache
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus, Nomination, PostFilterResult
from koordinator.scheduler.engine.profile import PointTimes, Profile
from koordinator.scheduler.engine.view import ClusterView

_EXAMPLES: Final = 3


def no_nodes() -> Rejection:
    """The rejection in a cluster without nodes."""
    return Rejection(NO_NODES, 0, (), frozenset(), frozenset({EventKind.NODE_ADD}))


def refused_on_node(profile: Profile, plugin: str, reason: Reason, node_name: str) -> Rejection:
    """The rejection by a plugin of the node that was chosen: at Permit, while waiting, or when a reservation is
    nominated."""
    rejected = (RejectedNodes(plugin, (reason.text,), reason.unresolvable, 1, (node_name,)),)
    known = profile.plugins.get(plugin)
    events_to_register = known.events_to_register() if known is not None else frozenset()
    return Rejection(fit_error(1, {reason.text: 1}), 1, rejected, frozenset({plugin}), events_to_register)


class Rejections:
    """Explains why pods of one class have no node; cached for pods that are tried before anything has changed."""

    def __init__(self, number: int) -> None:
        """``number`` is that of the class."""
        self._number = number
        self.row_cache = RowCache()
        """Results of PostFilter plugins by row, for all pods of the class."""
        self._by_variant: dict[Hashable, Rejection] = {}
        """By the result keys of the PostFilter plugins; valid for ``_version``."""
        self._version = -1

    def reject(self, attempt: Attempt, times: PointTimes) -> Rejection:
        """Run PostFilter for the pod and explain the evaluation of its class, which has no row for it."""
        pod, profile, view = attempt.pod, attempt.profile, attempt.cluster.view
        if self._version != view.columns.version:
            self._version = view.columns.version
            self._by_variant.clear()
        variant = tuple([plugin.result_key(pod) for plugin in profile.post_filter])
        alike = None not in variant and view.nominations.is_empty and attempt.only is None and attempt.refusal is None
        rejection = self._by_variant.get(variant) if alike else None
        if rejection is None:
            rejection = _reject(attempt, times)
            if attempt.refusal is None:
                rejection = replace(rejection, pod_class=self._number)
            if alike and not rejection.after.found:
                # A simulation leaves the columns as they were, at a later version.
                attempt.evaluation.refresh()
                self._version = view.columns.version
                self._by_variant[variant] = rejection
        for transformer in profile.post_filter_transformers:
            transformer.after_post_filter(pod, rejection.why)
        return rejection


def _reject(attempt: Attempt, times: PointTimes) -> Rejection:
    pod, profile, view, plan = attempt.pod, attempt.profile, attempt.cluster.view, attempt.evaluation.plan
    total, known = len(view.columns.row_of), profile.plugins
    begun = times.begin()
    try:
        after = _post_filter(profile, pod, attempt)
    except Exception:
        times.end("PostFilter", begun, "Error")
        raise
    times.end("PostFilter", begun, "Success" if after.found else "Unschedulable")
    if view.engine_filters:
        known = {**known, **{each.name: each for each in view.engine_filters}}
    refusal = attempt.refusal or plan.rejection
    if refusal is not None:
        plugin, reason = refusal
        rejected = [RejectedNodes(plugin, (reason.text,), reason.unresolvable, total, ())]
        names = {plugin, *attempt.involved}
        message = pre_filter_error(total, reason.text, after.message)
        found = _rejection(profile, known, message, 0, rejected, after, names)
        if attempt.refusal is None:
            return found
        return replace(found, waits_as=_waits_as(profile, plugin, pod), refusal=reason.text)
    rejected = [_rejected_rows(view, status) for status in attempt.statuses]
    skipped = total - sum([entry.count for entry in rejected])
    plugins = {entry.plugin for entry in rejected}
    restricted_by = [*plan.restricted_by, attempt.chosen_by] if attempt.chosen_by else plan.restricted_by
    if restricted_by and skipped:
        text = restricted_text(restricted_by)
        rejected.append(RejectedNodes(", ".join(restricted_by), (text,), True, skipped, ()))
        plugins.update(restricted_by)
    counts: Counter[str] = Counter()
    for entry in rejected:
        for text in entry.reasons:
            counts[text] += entry.count
    return _rejection(
        profile, known, fit_error(total, counts, after.message), total - skipped, rejected, after, plugins
    )


def _post_filter(profile: Profile, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
    """The result of the first plugin that nominates a node; otherwise the messages of all plugins are joined."""
    messages: list[str] = []
    nominated: str | None = None
    nominations: list[Nomination] = []
    for plugin in profile.post_filter:
        result = plugin.post_filter(pod, attempt)
        if result.found:
            return result
        if result.message:
            messages.append(result.message)
        nominated = result.nominated_node if result.nominated_node is not None else nominated
        nominations += result.nominations
    return PostFilterResult(", ".join(messages), nominated, nominations=tuple(nominations))


def _rejection(
    profile: Profile,
    known: Mapping[str, Plugin],
    message: str,
    evaluated: int,
    rejected: list[RejectedNodes],
    after: PostFilterResult,
    names: set[str],
) -> Rejection:
    # The events of the plugins that rejected nodes, and those that may change how the pod sees nodes.
    registering = [*[known[name] for name in names], *profile.filter_transformers]
    events_to_register = frozenset[str]().union(*[plugin.events_to_register() for plugin in registering])
    return Rejection(message, evaluated, tuple(rejected), frozenset(names), events_to_register, after=after)


def _waits_as(profile: Profile, plugin_name: str, pod: PodInfo) -> Hashable:
    """The key shared by pods that wait for the same events as this one, which the plugin rejected in this attempt; None
    if the pod waits alone."""
    plugin = profile.part(plugin_name, CyclePreFilterPlugin)
    key = plugin.waits_as(pod) if plugin is not None else None
    return (plugin_name, key) if key is not None else None


def _rejected_rows(view: ClusterView, status: NodeStatus) -> RejectedNodes:
    names = view.columns.names
    return RejectedNodes(
        status.plugin,
        tuple([reason.text for reason in status.reasons]),
        status.unresolvable,
        status.rows.size,
        tuple([names[row] for row in status.rows[:_EXAMPLES].tolist()]),
    )
