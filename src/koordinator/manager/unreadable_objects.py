"""How many objects exist in a form that cannot be read: they are passed over, which somebody has to be told of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from koordinator.base.metrics import Metrics
from koordinator.kube.informer import Informer


def export_unreadable(informers: Iterable[Informer[Any]], metrics: Metrics) -> None:
    """Of every kind that is watched, counted when it is asked for."""
    gauge = metrics.gauge(
        "koord_manager_unreadable_objects",
        "Objects that cannot be read as they are now, so that what was known of them before counts",
        ("kind",),
    )
    by_kind: dict[str, list[Informer[Any]]] = {}
    for informer in informers:
        by_kind.setdefault(informer.kind.name, []).append(informer)
    for kind, watching in by_kind.items():
        gauge.labels(kind).set_function(partial(_count, watching))


def _count(informers: Sequence[Informer[Any]]) -> float:
    return len({(each.namespace, each.name) for informer in informers for each in informer.malformed})
