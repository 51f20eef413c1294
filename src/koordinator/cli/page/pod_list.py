"""A part of the list of all pods: a browser cannot show fifty thousand, and nobody reads them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from koordinator.cli.page.board import ALL, Sight
from koordinator.cli.page.feed import Feed
from koordinator.cli.page.rows import KeptPod
from koordinator.kube.pages import PageError

_MOST: Final = 500
_USUAL: Final = 100


class PodList:
    """Answers questions about pods from what a feed has."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def page(self, query: Mapping[str, str], sight: Sight = ALL, *, measured: bool = True) -> dict[str, Any]:
        """Pods by name: ``node``, ``class``, ``phase`` and ``text`` (a part of ``namespace/name``) select them,
        ``after`` is the last name of the part before, ``limit`` how many at most. What nodes have ``measured`` is for
        those who may see their reports."""
        limit = _number(query, "limit", _USUAL)
        after = query.get("after", "")
        seen = (key for key in self._selected(query) if key > after and sight.shows(key))
        found = heapq.nsmallest(limit + 1, seen)
        pods = [self._feed.pod(key) for key in found[:limit]]
        rows = [self._row(pod, measured=measured) for pod in pods if pod is not None]
        return {"pods": rows, "more": len(found) > limit, "lacks": sight.lacks}

    def _selected(self, query: Mapping[str, str]) -> Iterator[str]:
        node, text = query.get("node", ""), query.get("text", "")
        name, phase = query.get("class", ""), query.get("phase", "")
        for pod in self._feed.pods_on(node) if node else self._feed.pods():
            key = pod.usage.key
            if text in key and name in ("", pod.usage.class_name) and phase in ("", pod.phase):
                yield key

    def _row(self, pod: KeptPod, *, measured: bool) -> dict[str, Any]:
        """That of ``koord top pods -o json``, with the phase."""
        return {**asdict(self._feed.measured(pod) if measured else pod.usage), "phase": pod.phase}


def _number(query: Mapping[str, str], name: str, otherwise: int) -> int:
    text = query.get(name, "") or str(otherwise)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST:
        raise PageError(400, f"400: {name}: {text!r} is not usable: a number from 1 to {_MOST} is\n")
    return int(text)
