"""Gangs that are too large to walk through all that can happen to them: random walks, and a fair ending of each."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.model.gang_declaration import MATCH_POLICIES
from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from tests.examples import examples
from tests.scheduler.plugins.coscheduling.test_exhaustive import Shape, Walk

_STEPS = 40

sizes = st.integers(1, 7).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count)))
shapes = st.builds(
    Shape,
    gangs=st.lists(sizes, min_size=2, max_size=5).map(lambda found: dict(zip("abcde", found, strict=False))),
    slots=st.integers(1, 20),
    together=st.booleans(),
    mode=st.sampled_from(["Strict", "NonStrict"]),
    policy=st.sampled_from(MATCH_POLICIES),
)


def check(walk: Walk) -> None:
    """No decision has bound a part, nobody has more slots than there are, and what the gangs say agrees."""
    assert not walk.partial
    assert len(walk.holding) <= walk.shape.slots
    assert all(walk.state(uid) is not MemberState.PENDING for uid in walk.holding)
    waiting = {uid for uid in walk.holding if walk.state(uid) is MemberState.WAITING}
    assert not waiting or walk.cache.wave is not None or walk.shape.mode == "NonStrict"


def finish(walk: Walk) -> None:
    """The attempt that is under way ends, and what may be bound is."""
    while walk.binding or walk.cache.wave is not None:
        if walk.cache.wave is not None:
            walk.take(("go on", ""))
        for uid in sorted(walk.binding):
            walk.take(("bind", uid))
    check(walk)


def expire(walk: Walk) -> None:
    """Whoever waits has waited for long enough."""
    while waiting := [uid for uid in sorted(walk.holding) if walk.state(uid) is MemberState.WAITING]:
        walk.take(("expire", waiting[0]))


def go_on(walk: Walk) -> None:
    """Everybody has a turn, and each gang once the first one, until nothing more is bound."""
    finish(walk)
    gangs, bound = list(walk.shape.gangs), -1
    while bound < (bound := len(walk.holding)):
        for first in gangs:
            expire(walk)
            for uid in sorted(walk.queued, key=lambda uid: (uid.split("-")[1] != first, uid)):
                if uid in walk.queued:
                    walk.take(("pop", uid))
                    finish(walk)
        expire(walk)


def left_in_spite_of_capacity(walk: Walk) -> list[str]:
    """The groups of which nobody is bound although there is free capacity for as many as they need."""
    free, groups = walk.shape.slots - len(walk.holding), walk.cache.groups.values()
    return [
        group.id
        for group in groups
        if not group.members(MemberState.BOUND)
        and sum(walk.shape.gangs[id_.removeprefix("default/")][1] for id_ in group.ids) <= free
    ]


@settings(max_examples=examples(60))
@given(shapes, st.data())
def test_whatever_happens_to_gangs_none_is_bound_in_part_and_none_that_fits_is_left(
    shape: Shape, data: st.DataObject
) -> None:
    walk = Walk(shape)
    for _ in range(data.draw(st.integers(0, _STEPS))):
        choices = list(walk.choices())
        if not choices:
            break
        walk.take(data.draw(st.sampled_from(choices)))
        check(walk)
    go_on(walk)
    assert left_in_spite_of_capacity(walk) == []
