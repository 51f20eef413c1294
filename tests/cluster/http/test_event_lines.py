from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.http.event_lines import EventLines
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.watch import WatchEvent

PODS, NODES = BUILTIN_RESOURCES[:2]


@dataclass
class Rendering:
    """Of one watcher."""

    name: str = "x"
    rendered: list[int] = field(default_factory=list)
    size: int = 1

    def __call__(self, event: WatchEvent) -> bytes:
        self.rendered.append(event.stored.revision)
        return f"{self.name}{event.stored.revision}".encode() * self.size


def _event(revision: int) -> WatchEvent:
    return WatchEvent("MODIFIED", Stored("/g/k/a", b"", revision))


def test_a_line_is_rendered_once_for_all_watchers() -> None:
    lines, first, second = EventLines(), Rendering(), Rendering()
    batch = [_event(1), _event(2)]
    with lines.watcher("plain", PODS) as one, lines.watcher("plain", PODS) as other:
        assert (one.join(first, batch), other.join(second, batch)) == (b"x1x2", b"x1x2")
    assert (first.rendered, second.rendered) == ([1, 2], [])


def test_other_kinds_and_forms_have_other_lines() -> None:
    lines, event = EventLines(), _event(1)
    with ExitStack() as stack:
        found = []
        for form, resource, name in (("plain", PODS, "a"), ("metadata", PODS, "b"), ("plain", NODES, "c")):
            shared = [stack.enter_context(lines.watcher(form, resource)) for _ in range(2)]
            found.append(shared[1].join(Rendering(name), [event]))
    assert found == [b"a1", b"b1", b"c1"]


def test_the_type_of_an_event_is_part_of_its_line() -> None:
    lines, rendering, stored = EventLines(), Rendering(), Stored("/g/k/a", b"", 1)
    with lines.watcher("plain", PODS) as shared, lines.watcher("plain", PODS):
        shared.join(rendering, [WatchEvent("ADDED", stored), WatchEvent("MODIFIED", stored)])
    assert rendering.rendered == [1, 1]


def test_for_one_watcher_nothing_is_kept() -> None:
    lines, rendering, event = EventLines(), Rendering(), _event(1)
    with lines.watcher("plain", PODS) as shared:
        shared.join(rendering, [event])
        shared.join(rendering, [event])
    assert rendering.rendered == [1, 1]


def test_large_lines_and_bookmarks_are_not_kept() -> None:
    lines, rendering = EventLines(), Rendering(size=40_000)
    bookmark = WatchEvent("BOOKMARK", Stored("", b"", 2))
    with lines.watcher("plain", PODS) as shared, lines.watcher("plain", PODS):
        for _ in range(2):
            shared.join(rendering, [_event(1), bookmark])
    assert rendering.rendered == [1, 2, 1, 2]


def test_few_lines_are_kept() -> None:
    lines, rendering = EventLines(), Rendering()
    batch = [_event(revision) for revision in range(300)]
    with lines.watcher("plain", PODS) as shared, lines.watcher("plain", PODS):
        shared.join(rendering, batch)
        rendering.rendered.clear()
        shared.join(rendering, batch[:1])
    assert rendering.rendered == [0]


def test_with_the_last_watcher_the_lines_go() -> None:
    lines, rendering, event = EventLines(), Rendering(), _event(1)
    for _ in range(2):
        with lines.watcher("plain", PODS) as shared, lines.watcher("plain", PODS):
            shared.join(rendering, [event])
    assert rendering.rendered == [1, 1]
