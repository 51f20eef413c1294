"""Why no node fits, in kube-scheduler's wording: people and programs search events for these texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

NO_NODES: Final = "no nodes available to schedule pods"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"


def fit_error(node_count: int, reasons: Mapping[str, int], after: str = "") -> str:
    """``0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable. <after>``.

    ``reasons`` maps the text of a reason to the number of nodes with it; the phrases are sorted as strings, as upstream
    does.
    """
    text = f"0/{node_count} nodes are available:"
    if reasons:
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    return f"{text} {after}" if after else text


def pre_filter_error(node_count: int, reason: str, after: str = "") -> str:
    """The text when PreFilter rejects all nodes at once: the plugin's reason, without a count."""
    text = f"0/{node_count} nodes are available: {reason}."
    return f"{text} {after}" if after else text


def preemption_error(node_count: int, reasons: Mapping[str, int], tried: int) -> str:
    """The text when preemption helps on no node: ``reasons`` (text -> nodes) of the ``tried`` nodes, and that it could
    not have helped on the others."""
    return fit_error(node_count, +Counter({**reasons, _NOT_HELPFUL: node_count - tried}))


def restricted_text(plugins: Iterable[str]) -> str:
    """The reason of the nodes that PreFilter plugins excluded."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]"
