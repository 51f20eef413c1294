"""The index of Reservations by their labels, for pods that select Reservations by ``reservationSelector``.

Many Reservations may have the same owners (``app: web``) and differ in their labels (``team: a``). The index then
leaves the few nodes on which a pod has to look. It is off unless ``reservationSelectorIndex`` names whole keys or
prefixes of keys. A bucket is a whole key with a value, or a prefix. Buckets hold nodes, and for each the Reservations
there, since a selector with several keys may be met by different Reservations of one node: the smallest bucket is
taken, and each Reservation on its nodes is matched as without the index.

The labels of a node count as those of its Reservations, as they do in the matching, so that the index never hides a
Reservation that the pod may take from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.registry import Collector

from koordinator.base.groups import Counts
from koordinator.base.instruments import Counter, Histogram
from koordinator.base.metrics import exponential_buckets
from koordinator.scheduler.configuration.koordinator_arguments import ReservationSelectorIndex

_CANDIDATES: Final = exponential_buckets(1, 2, 16)


class _Bucket(NamedTuple):
    """``key`` is the prefix of keys if ``value`` is None."""

    key: str
    value: str | None


class SelectorIndexMetrics(Collector):
    """How often the selector index was used, and how many nodes it left; names, labels and buckets are the
    original's."""

    def __init__(self) -> None:
        self._queries = Counter(
            "scheduler_reservation_selector_index_query_total",
            "[ALPHA] Look-ups in the index of Reservations by their labels, by whether the selector has such a label.",
            ("result",),
        )
        self._candidates = Histogram(
            "scheduler_reservation_selector_index_candidates_count",
            "[ALPHA] The nodes that a look-up in the index of Reservations by their labels has left.",
            (),
            _CANDIDATES,
        )
        self._candidates.labels()

    def looked_up(self, nodes: Sequence[str] | None) -> None:
        """A selector has left these nodes; None: it has no label that is indexed."""
        self._queries.labels("miss" if nodes is None else "hit").inc()
        if nodes:
            self._candidates.labels().observe(len(nodes))

    def collect(self) -> Iterable[Metric]:
        return [*self._queries.collect(), *self._candidates.collect()]


class SelectorIndex:
    """The nodes that have Reservations with labels like those of a selector."""

    def __init__(self, args: ReservationSelectorIndex) -> None:
        self._prefixes = _without_blanks(args.key_prefixes) if args.enabled else ()
        self._keys = frozenset(_without_blanks(args.keys) if args.enabled else ())
        self.is_enabled = bool(self._prefixes or self._keys)
        self.metrics = SelectorIndexMetrics()
        self.clear()

    def clear(self) -> None:
        """Remove all Reservations."""
        self._nodes = Counts[_Bucket, str]()
        """The number of Reservations in each bucket, by the name of their node."""
        self._entries: dict[str, tuple[str, frozenset[_Bucket]]] = {}
        """The node and the buckets of each Reservation, by its uid."""

    def set(self, uid: str, node_name: str, labels: Mapping[str, str]) -> None:
        """Index the Reservation on the node; ``labels`` are its own over those of the node."""
        self.remove(uid)
        exact = {_Bucket(key, value) for key, value in labels.items() if key in self._keys}
        by_prefix = {_Bucket(prefix, None) for prefix in map(self._prefix_of, labels) if prefix}
        buckets = frozenset(exact | by_prefix)
        if buckets:
            self._entries[uid] = node_name, buckets
        for bucket in buckets:
            self._nodes.add(bucket, node_name, 1)

    def remove(self, uid: str) -> None:
        """Remove the Reservation, which is on no node any more."""
        node_name, buckets = self._entries.pop(uid, ("", frozenset[_Bucket]()))
        for bucket in buckets:
            self._nodes.add(bucket, node_name, -1)

    def candidates(self, selector: Mapping[str, str]) -> list[str] | None:
        """The names of the nodes that may have a Reservation with all labels of the selector; None: no label of it is
        indexed, so that all have to be considered."""
        found: list[Mapping[str, int]] = []
        for key, value in selector.items():
            if key in self._keys:
                found.append(self._nodes.of(_Bucket(key, value)))
            elif prefix := self._prefix_of(key):
                found.append(self._nodes.of(_Bucket(prefix, None)))
        smallest = min(found, key=len, default=None)
        names = sorted(smallest) if smallest is not None else None
        self.metrics.looked_up(names)
        return names

    def document(self, *, detail: bool) -> dict[str, Any]:
        """The service's document, in the original's format: how many nodes and Reservations are in each bucket; with
        ``detail`` also which."""
        document: dict[str, Any] = {"enabled": self.is_enabled, "prefixes": list(self._prefixes) or None}
        if self._keys:
            document["keys"] = sorted(self._keys)
        document["indexedReservations"] = len(self._entries)
        by_prefix, by_key, values = _ByNode(), _ByNode(), defaultdict[str, _ByNode](_ByNode)
        for uid, (node_name, buckets) in sorted(self._entries.items()):
            for key, value in buckets:
                (by_prefix if value is None else by_key)[key][node_name].append(uid)
                if value is not None:
                    values[key][value][node_name].append(uid)
        if by_prefix:
            document["byPrefix"] = by_prefix.document(detail=detail)
        if by_key:
            document["byKey"] = by_key.document(detail=detail)
        if by_key and detail:
            document["byKeyValue"] = {key: values[key].document(detail=True) for key in sorted(values)}
        return document

    def _prefix_of(self, key: str) -> str:
        """The first prefix that the key starts with; "" if there is none."""
        return next((prefix for prefix in self._prefixes if key.startswith(prefix)), "")


def _without_blanks(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stripped for name in names if (stripped := name.strip())))


class _ByNode(defaultdict[str, defaultdict[str, list[str]]]):
    """The uids of Reservations by bucket and node."""

    def __init__(self) -> None:
        super().__init__(lambda: defaultdict(list))

    def document(self, *, detail: bool) -> dict[str, Any]:
        return {
            name: {
                "nodes": len(there),
                "reservations": sum(map(len, there.values())),
                **({"byNode": dict(sorted(there.items()))} if detail else {}),
            }
            for name, there in sorted(self.items())
        }
