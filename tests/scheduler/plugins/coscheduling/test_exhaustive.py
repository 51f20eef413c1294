"""All that can happen to small gangs, in every order: the state machine is walked through exhaustively.

A step is what the queue, a node, a clock or a binding may do next. In every state that can be reached, no decision
binds a Strict gang in part, nobody of a Strict gang that is not being tried keeps a node, and from everywhere there is
a way on which a gang that fits gets its nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from koordinator.model.gang_declaration import MATCH_POLICIES
from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.plugins.coscheduling.gang_fakes import member

STATES = 60_000
Step = tuple[str, str]


class Shape(NamedTuple):
    """Gang -> (pods, minimum); slots of the one node."""

    gangs: dict[str, tuple[int, int]]
    slots: int
    together: bool = False
    mode: str = "Strict"
    policy: str = "once-satisfied"


@dataclass
class Walk:
    """A cluster after some steps: the gangs, and who holds a slot. It is made by taking the steps anew."""

    shape: Shape
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        self.cache = GangCache()
        self.holding: set[str] = set()
        self.queued: set[str] = set()
        self.binding: set[str] = set()
        self.notified: deque[tuple[str, bool]] = deque()
        self.partial: list[str] = []
        groups = tuple(self.shape.gangs) if self.shape.together else ()
        others: dict[str, Any] = {"mode": self.shape.mode, "match_policy": self.shape.policy}
        for gang, (count, minimum) in self.shape.gangs.items():
            for number in range(count):
                pod = member(gang, number, minimum, together=groups, **others)
                self.cache.set_pod(pod, "")
                self.queued.add(pod.metadata.uid)
        self.obey()
        for step in self.steps:
            self.take(step)

    def obey(self) -> None:
        instructions = self.cache.take_instructions()
        self.notified += [(uid, True) for uid in instructions.allow]
        self.notified += [(uid, False) for uid, _ in instructions.reject]
        while self.notified:
            uid, allowed = self.notified.popleft()
            if allowed:
                self.binding.add(uid)
            else:
                self.let_go(uid)

    def let_go(self, uid: str) -> None:
        self.holding.discard(uid)
        self.binding.discard(uid)
        self.queued.add(uid)
        self.cache.unreserve(uid)
        self.obey()

    def state(self, uid: str) -> MemberState:
        found = self.cache.by_uid.get(uid)
        assert found is not None
        return found.state

    def choices(self) -> Iterator[Step]:
        """Pods of a gang are alike: what the first of them may do stands for all."""
        yield from (("bind", uid) for uid in first_of_each_gang(self.binding))
        yield from (("fail to bind", uid) for uid in first_of_each_gang(self.binding))
        if self.cache.wave is not None:
            yield "go on", ""
            return
        yield from (("pop", uid) for uid in first_of_each_gang(self.queued))
        waiting = {uid for uid in self.holding - self.binding if self.state(uid) is MemberState.WAITING}
        yield from (("expire", uid) for uid in first_of_each_gang(waiting))

    def take(self, step: Step) -> None:
        kind, uid = step
        match kind:
            case "bind":
                self.binding.remove(uid)
                self.cache.bound(uid)
            case "fail to bind" | "expire":
                self.let_go(uid)
            case "pop":
                self.attempt(uid)
            case "go on":
                following = self.cache.next_pod()
                if following is not None:
                    self.attempt(following)
        self.obey()

    def attempt(self, uid: str) -> None:
        self.queued.remove(uid)
        failure = self.cache.begin_attempt(uid)
        self.obey()
        if failure or len(self.holding) >= self.shape.slots:
            self.queued.add(uid)
            if not failure:
                self.cache.attempt_failed(uid, "no room")
            return
        self.holding.add(uid)
        seconds = self.cache.permit(uid)
        if seconds is None:
            self.binding.add(uid)
        self.obey()
        if seconds is None:
            self.note_partial(uid)

    def note_partial(self, uid: str) -> None:
        """Whoever is allowed to be bound has enough others beside it."""
        member_ = self.cache.by_uid.get(uid)
        assert member_ is not None
        assert member_.gang.group is not None
        for id_ in member_.gang.group.ids:
            gang = id_.removeprefix("default/")
            held = sum(each.startswith(f"uid-{gang}-") for each in self.holding)
            if held < self.shape.gangs[gang][1] and not self.cache.gangs[id_].is_released:
                self.partial.append(gang)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for clusters in which the same can happen from now on, but for the names of pods that are alike."""
        cache, wave = self.cache, self.cache.wave
        todo = set(wave.todo) if wave is not None else set()
        pods = Counter(
            (gang.id, uid in self.holding, uid in self.binding, uid in self.queued, uid in todo, each.state)
            for gang in cache.gangs.values()
            for uid, each in gang.members.items()
        )
        now = (wave.group.id, len(wave.permitted), bool(wave.failure)) if wave else None
        return frozenset(pods.items()), now, tuple(group.once_satisfied for group in cache.groups.values())


def first_of_each_gang(uids: Iterable[str]) -> list[str]:
    found: dict[str, str] = {}
    for uid in sorted(uids):
        found.setdefault(uid.rpartition("-")[0], uid)
    return list(found.values())


def explore(
    shape: Shape,
) -> tuple[dict[tuple[object, ...], Walk], dict[tuple[object, ...], dict[Step, tuple[object, ...]]]]:
    start = Walk(shape)
    found, ways = {start.key: start}, dict[tuple[object, ...], dict[Step, tuple[object, ...]]]()
    todo = deque([start])
    while todo:
        walk = todo.popleft()
        ways[walk.key] = {}
        for step in walk.choices():
            after = Walk(shape, (*walk.steps, step))
            ways[walk.key][step] = after.key
            if after.key not in found:
                found[after.key] = after
                todo.append(after)
        assert len(found) < STATES
    return found, ways


SMALL = [
    Shape({"a": (2, 2)}, 2),
    Shape({"a": (2, 2)}, 1),
    Shape({"a": (2, 2), "b": (2, 2)}, 2),
    Shape({"a": (2, 2), "b": (1, 1)}, 2),
    Shape({"a": (2, 2), "b": (1, 1)}, 3, together=True),
    Shape({"a": (2, 2), "b": (1, 1)}, 2, together=True),
    Shape({"a": (3, 2)}, 2),
]


@pytest.mark.parametrize("policy", MATCH_POLICIES)
@pytest.mark.parametrize("shape", SMALL)
def test_strict_gangs_are_bound_together_or_hold_nothing(shape: Shape, policy: str) -> None:
    found, _ = explore(shape._replace(policy=policy))
    for walk in found.values():
        assert not walk.partial, walk.steps
        if walk.cache.wave is None:
            waiting = [uid for uid in walk.holding if walk.state(uid) is MemberState.WAITING]
            assert not waiting, walk.steps
        assert all(walk.state(uid) is not MemberState.PENDING for uid in walk.holding), walk.steps


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
@pytest.mark.parametrize("shape", SMALL)
def test_whatever_has_happened_a_gang_that_fits_can_still_get_its_nodes(shape: Shape, mode: str) -> None:
    """In each strongly connected part of the states that is never left, a gang is bound, or none fits."""
    found, ways = explore(shape._replace(mode=mode))
    wanted = sum(minimum for _, minimum in shape.gangs.values())
    least = wanted if shape.together else min(minimum for _, minimum in shape.gangs.values())
    if least > shape.slots:
        assert not any(walk.binding for walk in found.values())
        return
    good = {key for key, walk in found.items() if any(walk.state(uid) is MemberState.BOUND for uid in walk.holding)}
    before: dict[tuple[object, ...], set[tuple[object, ...]]] = {key: set() for key in found}
    for key, steps in ways.items():
        for following in steps.values():
            before[following].add(key)
    todo = deque(good)
    while todo:
        for key in before[todo.popleft()] - good:
            good.add(key)
            todo.append(key)
    assert good == set(found)
