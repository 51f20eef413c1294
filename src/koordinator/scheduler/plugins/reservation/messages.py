"""What a pod is told that did not get into any Reservation: how many of those it owns stood in the way of what.

The counts and words are those of the original's PostFilter and of its event about reservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.plugins.reservation.booking import Match
from koordinator.scheduler.plugins.reservation.matching import Mismatch, Wish

_PREFIX: Final = "Reservation(s) "
_OWNED: Final = "Reservation(s) matched owner total"
_EXACTLY: Final = "Reservation(s) exactly matches the requested reservation name"
_FOR_NODE: Final = "Reservation(s) for node reason that "
_ORDER: Final = (Mismatch.NAME, Mismatch.AFFINITY, Mismatch.UNSCHEDULABLE, Mismatch.NOT_EXACT, Mismatch.TAINTS)


def summary(
    match: Match, wish: Wish, nodes: Mapping[str, str], statuses: Sequence[NodeStatus], names: Sequence[str]
) -> str:
    """What is added to the message of a pod. ``nodes``: the node of each matched Reservation, by its uid; ``names``:
    those of the rows of ``statuses``."""
    owned = len(match.uids) + len(match.unmatched)
    found: list[str] = []
    if wish.affinity is not None and wish.affinity.name and match.uids:
        found.append(f"{len(match.uids)} {_EXACTLY}")
    for why in _ORDER:
        counts = Counter(each.detail for each in match.unmatched if each.why is why)
        found += [
            f"{count} {_PREFIX}{why.value}{' ' + detail if detail else ''}" for detail, count in sorted(counts.items())
        ]
    for text, count in sorted(_for_node_reasons(match, nodes, statuses, names).items()):
        found.append(f"{count} {_FOR_NODE}{text}")
    return ", ".join([*found, f"{owned} {_OWNED}"])


def _for_node_reasons(
    match: Match, nodes: Mapping[str, str], statuses: Sequence[NodeStatus], names: Sequence[str]
) -> Counter[str]:
    """Each matched Reservation counts for what its node, and not itself, lacks."""
    matched = Counter(nodes[uid] for uid in match.uids)
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
    """The note of the event about reservations, made of a pod's whole message; "" if that counts none."""
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
    """What names the Reservation exactly first, what is for reasons of nodes last."""
    return sorted(items, key=lambda each: (_FOR_NODE.strip() in each) - (_EXACTLY in each))
