"""Who is told of events, and how often."""

from __future__ import annotations

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.scheduler.engine.framework import Observer
from koordinator.scheduler.engine.observers import Observers


class Log(Observer):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def on_node(self, row: int, node: Node) -> None:
        self.rows.append(row)


class Reader(Observer):
    """Reads what ``log`` has noted."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def told(self) -> Observer:
        return self.log


def test_what_several_share_is_told_once() -> None:
    log, observers = Log(), Observers()
    observers.add([Reader(log), Reader(log)])
    observers.add([Reader(log)])
    observers.tell("on_node", 3, Node(metadata=ObjectMeta(name="a")))
    assert log.rows == [3]
