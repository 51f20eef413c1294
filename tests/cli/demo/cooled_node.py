"""What is seen of a node that koord-descheduler has cooled as it should."""

from __future__ import annotations

from koordinator.api.pod_migration_job import SUCCEEDED
from koordinator.api.rebalance_explanation import RebalanceExplanation, StayingPods
from koordinator.cli.demo.hot_node import HotNode, Move


def a_cooled_node() -> HotNode:
    return HotNode(
        used=[(3.0, 12), (4.0, 54), (5.0, 53), (6.0, 44), (7.0, 33), (9.0, 50)],
        ready=[(3.0, 4), (5.5, 3), (6.0, 4)],
        moves={
            "job-0": Move("crawler-1", 5.8, SUCCEEDED, "crawler-4", "node-3", "node-3"),
            "job-1": Move("crawler-3", 6.8, SUCCEEDED, "crawler-5", "node-4", "node-4"),
        },
        began={"job-0": 5.0, "job-1": 6.0},
        rebalance=RebalanceExplanation(
            rebalance="koord-descheduler",
            pods=83,
            stays=[StayingPods(why="pod does not have any ownerRefs", pods=83, examples=["default/feed-02"])],
        ),
    )
