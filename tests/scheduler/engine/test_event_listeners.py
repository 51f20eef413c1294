"""Who is notified of events, and how often."""

from __future__ import annotations

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.view import ClusterView


class Log(EventHandler):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def on_node(self, row: int, node: Node) -> None:
        self.rows.append(row)


class Reader(EventHandler):
    """Reads what ``log`` has noted."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def event_handler(self) -> EventHandler:
        return self.log


def test_what_several_share_is_reported_once() -> None:
    log, state = Log(), ClusterState(ClusterView(NodeColumns()))
    state.add_event_handlers([Reader(log), Reader(log)])
    state.add_event_handlers([Reader(log)])
    state.set_node(Node(metadata=ObjectMeta(name="a")))
    assert log.rows == [0]
