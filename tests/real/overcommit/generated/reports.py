"""What the agent of a node says, by chance: also old, in part, or of the wrong shape."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.real.overcommit.generated import quantities
from tests.real.overcommit.node_case import Document

_CLASSES: Final = ("koord-prod", "koord-mid", "koord-batch", "koord-free", "", "bogus")
_MINUTE: Final = 60.0


def report(chance: Random, cores: int, gibibytes: int, pods: list[Document]) -> Document:
    """The status of a NodeMetric without its time."""
    status: Document = {"nodeMetric": _node(chance, cores, gibibytes)}
    if pods or chance.random() < 0.5:
        status["podsMetric"] = pods
    if chance.random() < 0.3:
        status["hostApplicationMetric"] = [
            {
                "name": f"host-{number}",
                "priority": chance.choice(_CLASSES),
                "usage": {"resources": quantities.pair(chance, 2, 3)},
                **({"qos": "LS"} if chance.random() < 0.5 else {}),
            }
            for number in range(chance.choice([1, 2, 3]))
        ]
    if chance.random() < 0.7:
        amounts = quantities.pair(chance, max(cores // 2, 1), max(gibibytes // 2, 1))
        status["prodReclaimableMetric"] = {"resource": {"resources": amounts}}
    elif chance.random() < 0.3:
        status["prodReclaimableMetric"] = {"resource": {}}
    return status


def age(chance: Random) -> float | None:
    """Of a report in seconds, never so near to a limit that it matters which program looks first."""
    drawn = chance.random()
    if drawn < 0.85:
        return 0.0
    if drawn < 0.88:
        return None
    return chance.choice([20, 60, 24 * 60]) * _MINUTE


def _node(chance: Random, cores: int, gibibytes: int) -> Document:
    used = quantities.pair(chance, cores, gibibytes)
    system = quantities.pair(chance, max(cores // 8, 1), max(gibibytes // 8, 1))
    node: Document = {"nodeUsage": {"resources": used}, "systemUsage": {"resources": system}}
    for part, share in (("nodeUsage", 0.03), ("systemUsage", 0.03)):
        if chance.random() < share:
            node[part] = chance.choice([{}, {"resources": {}}])
    if chance.random() < 0.2:
        usage = {"p50": {"resources": quantities.pair(chance, cores, gibibytes)}, "p99": {}}
        node["aggregatedNodeUsages"] = [{"usage": usage, "duration": "5m0s"}]
    return node
