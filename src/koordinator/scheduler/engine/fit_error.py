"""Why no node fits, in the words of kube-scheduler: people and programs search events for these texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

NO_NODES: Final = "no nodes available to schedule pods"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NEVER: Final = "not eligible due to preemptionPolicy=Never."


def fit_error(node_count: int, reasons: Mapping[str, int], after: str = "") -> str:
    """``0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable. <after>``.

    ``reasons`` maps the text of a reason to the nodes that give it; the phrases are sorted as strings, like upstream.
    """
    text = f"0/{node_count} nodes are available:"
    if reasons:
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    return f"{text} {after}" if after else text


def pre_filter_error(node_count: int, reason: str, after: str = "") -> str:
    """The text when a plugin rules out all nodes at once: its reason, without a count."""
    text = f"0/{node_count} nodes are available: {reason}."
    return f"{text} {after}" if after else text


def preemption_text(node_count: int, without_victims: int, *, never: bool) -> str:
    """What DefaultPreemption adds when it finds nobody to evict.

    ``without_victims`` counts the nodes where eviction might have helped but nothing is less important than the pod;
    on all others it would not have helped anyway. ``never``: the pod may not preempt.
    """
    if never:
        return f"preemption: {_NEVER}"
    reasons = Counter({_NO_VICTIMS: without_victims, _NOT_HELPFUL: node_count - without_victims})
    return f"preemption: {fit_error(node_count, +reasons)}"


def restricted_text(plugins: Iterable[str]) -> str:
    """The reason of the nodes that PreFilter plugins left out of consideration."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]"
