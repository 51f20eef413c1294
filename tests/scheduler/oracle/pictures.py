"""All that a scheduler's plugins show of a cluster and decide about a few pods, without what only a scheduler that has
been running can know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.explain.explainer import Explainer
from koordinator.scheduler.explain.sources import Objection, filter_nodes
from koordinator.scheduler.program import Scheduler
from tests.scheduler.oracle import documents
from tests.scheduler.oracle.documents import Document
from tests.scheduler.oracle.known import profile_of

_NAMES: Final = ("n0", "n1", "n2", "r0", "r1", documents.TEAM, "child-0", "child-1", "gang")
_REMEMBERED: Final = frozenset(
    {
        "onceResourceSatisfied",
        "OnceResourceSatisfied",
        "gangGroupInfo",
        "createTime",
        "problems",
        "runtimeVersion",
        "reason",
    }
)
"""Of a gang: whether it ever ran, and how its last attempt ended; of a quota: how often its share was computed; of a
pod: why it waits, in which what has come and gone is a zero."""
_ABOUT_THE_PAST: Final = (
    ("LoadAwareScheduling", "/node/:nodeName"),
    ("Coscheduling", "/gang/:namespace/:name/explanation"),
)
"""When each pod was first seen, and how the last attempt ended."""


def picture(scheduler: Scheduler, now: datetime) -> Document:
    profile, view = profile_of(scheduler), scheduler.state.view
    for handler in profile.event_handlers:
        # As before each decision.
        handler.on_time(now)
    rows = view.columns.row_of
    return {
        "nominations": {pod.key: node for node in view.nominations.nodes for pod in view.nominations.on(node)},
        "allocations": {
            pod.key: [repr(view.allocations.of(plugin, uid)) for plugin in profile.plugins]
            for pods in view.pods_on.values()
            for uid, pod in pods.items()
            # What a Reservation has taken over is recorded on the pods.
            if uid not in view.pseudo_pods
        },
        "facts": {
            plugin.name: _plain({name: plugin.node_facts(row) for name, row in rows.items()})
            for plugin in profile.parts
            if isinstance(plugin, Explainer)
        },
        "services": {
            f"{plugin.name}{path}": _answers(serve)
            for plugin in profile.parts
            if isinstance(plugin, ServiceProvider)
            for path, serve in plugin.services().items()
            if (plugin.name, path) not in _ABOUT_THE_PAST
        },
        "pods": {shape: _evaluated(scheduler, shape) for shape in documents.SHAPES if shape != "gang"},
    }


def _answers(serve: Any) -> Document:
    found: Document = {}
    for name in _NAMES:
        try:
            answer = _plain(serve({"nodeName": name, "name": name, "namespace": "default"}))
        except Exception as error:
            # Not every name is one of each service.
            answer = str(error)
        if answer:
            found[name] = answer
    return found


def _plain(found: Any) -> Any:
    """In a form that can be compared, without what is zero or empty: what has come and gone leaves no other trace."""
    if isinstance(found, Mapping):
        plain = {str(key): _plain(each) for key, each in found.items() if key not in _REMEMBERED}
        return {key: each for key, each in plain.items() if each}
    if isinstance(found, Objection):
        # What a node lacks may be said of either of two nodes that are equal.
        return found.plugin, _plain(found.reasons)
    if type(found) in (list, tuple):
        return sorted((_plain(each) for each in found), key=repr)
    if isinstance(found, Quantity):
        return found.nanos
    return found if isinstance(found, str | int | float | bool | None) else repr(found)


def _evaluated(scheduler: Scheduler, shape: str) -> Document:
    view, profile = scheduler.state.view, profile_of(scheduler)
    document = documents.pod(f"asks-{shape}", shape)
    document["metadata"]["uid"] = document["metadata"]["name"]
    info = make_pod_info(convert(document, Pod))
    results = filter_nodes(profile, view, info)
    if results.plan.rejection is not None:
        return {"rejection": repr(results.plan.rejection)}
    evaluation = Evaluation(profile, view, info)
    evaluation.refresh()
    return {
        view.columns.names[row]: (_plain(results.objections(index)), repr(evaluation.scores_of((row,))[0]))
        for index, row in enumerate(results.rows.tolist())
    }
