"""The message for a pod that fits into no Reservation: how many of those that it owns fail for which reason.

The counts and the wording are those of the original's PostFilter and of its event about reservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.plugins.reservation.booking import Unmatched
from koordinator.scheduler.plugins.reservation.matching import Mismatch

_PREFIX: Final = "Reservation(s) "
_OWNED: Final = "Reservation(s) matched owner total"
_EXACTLY: Final = "Reservation(s) exactly matches the requested reservation name"
_FOR_NODE: Final = "Reservation(s) for node reason that "
_ORDER: Final = (Mismatch.NAME, Mismatch.AFFINITY, Mismatch.UNSCHEDULABLE, Mismatch.NOT_EXACT, Mismatch.TAINTS)


class Owned(NamedTuple):
    """What is counted: the Reservations that a pod owns, or the pods that a Reservation may take over."""

    matched: Sequence[str]
    """The node of each that matches."""
    unmatched: Sequence[Unmatched]
    by_name: bool = False
    """Whether those that match were selected by name."""


def summary(owned: Owned, statuses: Sequence[NodeStatus], names: Sequence[str]) -> str:
    """The text added to the message of a pod. ``names``: those of the rows of ``statuses``."""
    found: list[str] = []
    if owned.by_name and owned.matched:
        found.append(f"{len(owned.matched)} {_EXACTLY}")
    for why in _ORDER:
        counts = Counter(each.detail for each in owned.unmatched if each.why is why)
        found += [
            f"{count} {_PREFIX}{why.value}{' ' + detail if detail else ''}" for detail, count in sorted(counts.items())
        ]
    for text, count in sorted(_for_node_reasons(owned.matched, statuses, names).items()):
        found.append(f"{count} {_FOR_NODE}{text}")
    return ", ".join([*found, f"{len(owned.matched) + len(owned.unmatched)} {_OWNED}"])


def _for_node_reasons(nodes: Iterable[str], statuses: Sequence[NodeStatus], names: Sequence[str]) -> Counter[str]:
    """Count each match with the reasons of its node that do not concern the Reservation itself."""
    matched = Counter(nodes)
    counts: Counter[str] = Counter()
    for status in statuses:
        own = sum(reason.text.startswith(_PREFIX) for reason in status.reasons)
        others = [reason.text for reason in status.reasons if not reason.text.startswith(_PREFIX)]
        for row in status.rows.tolist():
            left = matched.get(names[row], 0) - own
            if left > 0:
                counts.update(dict.fromkeys(others, left))
    return counts


def event_note(message: str) -> str:
    """The note of the event about reservations, extracted from a pod's whole message; "" if that has no such counts."""
    _, found, rest = message.partition(" nodes are available: ")
    if not found:
        return ""
    items = [each.strip().rstrip(".") for each in rest.replace(". ", ", ").split(",")]
    counted = [each for each in items if _count_of(each, _PREFIX)]
    total = next((each.split(" ")[0] for each in counted if each.endswith(_OWNED)), "")
    if not total:
        return ""
    shown = [each for each in counted if not each.endswith(_OWNED)]
    return f"0/{total} reservations are available: {', '.join(_arranged(shown))}."


def _count_of(text: str, prefix: str) -> bool:
    count, _, rest = text.partition(" ")
    return count.isdigit() and rest.startswith(prefix)


def _arranged(items: Iterable[str]) -> list[str]:
    """Texts about exact names first, those about nodes last."""
    return sorted(items, key=lambda each: (_FOR_NODE.strip() in each) - (_EXACTLY in each))
