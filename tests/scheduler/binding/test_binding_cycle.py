"""Any course of a binding: one thing is under way at a time, nothing is freed too early, and there is one end."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.kube.errors import ApiStatusError, KubeError, TransportError, UnsentError
from koordinator.scheduler.binding.binding_cycle import (
    BOUND,
    CARRIED_OUT,
    RESERVED,
    Answered,
    Broke,
    Delayed,
    End,
    Event,
    Failed,
    GivenUp,
    Instruction,
    Outcome,
    Pause,
    Permitted,
    PreBind,
    Prepared,
    Read,
    Rejected,
    Result,
    Send,
    Shown,
    Stage,
    State,
    Wait,
    step,
)
from tests.examples import examples
from tests.real_world.faulty_api_server import FAULTS, bindings
from tests.scheduler.fakes import make_pod
from tests.scheduler.recording import one_node, plugin_of, recording
from tests.scheduler.running_scheduler import RunningScheduler, simulate

LOST: Final = TransportError("the connection broke")
FAILURES: Final[tuple[KubeError, ...]] = (
    LOST,
    TransportError("refused", maybe_applied=False),
    UnsentError("not sent"),
    ApiStatusError(500, "InternalError", "etcd"),
    ApiStatusError(409, "Conflict", "bound already"),
    ApiStatusError(403, "Forbidden", "not allowed"),
    ApiStatusError(404, "NotFound", "no such pod"),
    ApiStatusError(429, "TooManyRequests", "later", retry_after=3600.0),
)
ANSWERS: Final[dict[type[Instruction] | None, tuple[type[Event], ...]]] = {
    None: (Delayed, Permitted, Broke),
    Wait: (Permitted, Rejected, Broke),
    PreBind: (Prepared, Broke),
    Send: (Answered, Failed, Broke),
    Read: (Shown, Broke),
    Pause: (Shown, GivenUp, Broke),
    End: (),
}
"""The events that may follow each instruction; None for the beginning."""
OUTCOMES: Final = (None, BOUND, Outcome(Result.GONE), Outcome(Result.ELSEWHERE, "it is on b"))
OF_KIND: Final[dict[type[Event], st.SearchStrategy[Event]]] = {
    Delayed: st.just(Delayed({"Gang": 30.0})),
    Permitted: st.builds(Permitted, st.booleans()),
    Rejected: st.just(Rejected("Gang", "broken up")),
    Prepared: st.builds(Prepared, st.booleans()),
    Answered: st.just(Answered()),
    Failed: st.builds(Failed, st.sampled_from(FAILURES), st.just(0.0)),
    Shown: st.builds(Shown, st.sampled_from(OUTCOMES)),
    GivenUp: st.builds(GivenUp, st.integers(1, 5), st.just(0.0), st.booleans()),
    Broke: st.just(Broke("a plugin has failed")),
}
EVENTS: Final = st.one_of(*OF_KIND.values())
WORST: Final[dict[type[Instruction] | None, Event]] = {
    None: Delayed({"Gang": 30.0}),
    Wait: Permitted(has_work=True),
    PreBind: Prepared(is_bound=False),
    Send: Failed(LOST, 0.0),
    Read: Shown(None),
    Pause: GivenUp(5, 0.0, has_node=True),
}
"""The longest way to the end."""


class Course:
    """A binding, with what a program around it must never see."""

    def __init__(self) -> None:
        self.state: State = RESERVED
        self.instruction: Instruction | None = None
        self.now = 0.0
        self.lost_at = -CARRIED_OUT
        """When the last request was sent whose answer is lost."""
        self.read_at = 0.0
        self.ends: list[Outcome] = []

    @property
    def kind(self) -> type[Instruction] | None:
        return type(self.instruction) if self.instruction is not None else None

    @property
    def is_in_flight(self) -> bool:
        return isinstance(self.instruction, Send | Read)

    def on(self, event: Event, seconds: float = 0.0) -> bool:
        """Whether the event may come after so many seconds; if not, it must be refused, and change nothing."""
        self.now += seconds
        if isinstance(self.instruction, Pause):
            self.now += self.instruction.seconds or 1.0
        if isinstance(event, GivenUp):
            event = GivenUp(event.attempts, self.now, event.has_node)
        if isinstance(event, Failed):
            event = Failed(event.failure, self.now - seconds)
        if type(event) not in ANSWERS[self.kind]:
            with pytest.raises(ValueError, match="does not wait for"):
                step(self.state, event)
            return False
        self._note(event)
        self.state, self.instruction = step(self.state, event)
        if isinstance(self.instruction, End):
            self.ends.append(self.instruction.outcome)
        return True

    def _note(self, event: Event) -> None:
        if isinstance(event, Failed) and event.failure is LOST:
            self.lost_at = event.sent_at
        if isinstance(event, Shown) and isinstance(self.instruction, Read):
            self.read_at = self.now

    def check(self) -> None:
        stage = self.state.stage
        assert (stage in (Stage.SENDING, Stage.READING)) == self.is_in_flight
        assert len(self.ends) == (stage in (Stage.BOUND, Stage.UNRESERVED))
        if self.ends:
            assert (self.ends[0].result is Result.BOUND) == (stage is Stage.BOUND)


@settings(max_examples=examples(400))
@given(st.data())
def test_any_course_has_one_request_in_flight_and_one_end(data: st.DataObject) -> None:
    course = Course()
    for _ in range(data.draw(st.integers(0, 20))):
        expected = st.one_of([OF_KIND[kind] for kind in ANSWERS[course.kind]] or [EVENTS])
        course.on(data.draw(st.one_of(expected, EVENTS)))
        course.check()
    for _ in range(12):
        if isinstance(course.instruction, End):
            break
        # A pause after it was given up ends by time.
        worst = Shown(None) if course.kind is Pause and course.state.refusal else WORST[course.kind]
        assert course.on(worst)
        course.check()
    assert len(course.ends) == 1
    assert not course.on(data.draw(EVENTS))


@settings(max_examples=examples(400))
@given(st.data())
def test_the_room_is_never_free_while_a_lost_request_may_be_carried_out(data: st.DataObject) -> None:
    """Nothing shows where the object is, and its node stays."""
    course = Course()
    course.on(Permitted(has_work=False))
    unhelpful: dict[type[Instruction], st.SearchStrategy[Event]] = {
        Send: st.builds(Failed, st.sampled_from([LOST, *FAILURES]), st.just(0.0)),
        Read: st.just(Shown(None)),
        Pause: st.sampled_from([GivenUp(5, 0.0, has_node=True), Shown(None)]),
    }
    while isinstance(course.instruction, Send | Read | Pause):
        worst = course.state.refusal and isinstance(course.instruction, Pause)
        event = Shown(None) if worst else data.draw(unhelpful[type(course.instruction)])
        course.on(event, data.draw(st.sampled_from([0.0, 1.0, CARRIED_OUT])))
    assert course.ends[0].result is Result.REFUSED
    assert course.read_at >= course.lost_at + CARRIED_OUT


def test_a_lost_answer_is_given_up_only_when_the_server_has() -> None:
    course = Course()
    for event in (Permitted(has_work=False), Failed(LOST, 0.0), Shown(None), GivenUp(5, 0.0, has_node=True)):
        assert course.on(event)
    assert isinstance(course.instruction, Pause)
    assert course.instruction.seconds == CARRIED_OUT - course.now
    assert course.on(Shown(None))
    assert course.on(Shown(None))
    assert course.ends == [Outcome(Result.REFUSED, "the connection broke; it was tried 5 times")]


WAYS: Final[dict[type[Instruction] | None, list[Event]]] = {
    None: [],
    Wait: [Delayed({"Gang": 30.0})],
    PreBind: [Permitted(has_work=True)],
    Send: [Permitted(has_work=False)],
    Read: [Permitted(has_work=False), Failed(LOST, 0.0)],
    Pause: [Permitted(has_work=False), Failed(UnsentError("not sent"), 0.0)],
    End: [Broke("a plugin has failed")],
}


@pytest.mark.parametrize("kind", WAYS, ids=str)
@given(event=EVENTS)
def test_an_event_is_refused_where_nothing_waits_for_it(kind: type[Instruction] | None, event: Event) -> None:
    course = Course()
    for each in WAYS[kind]:
        assert course.on(each)
    assert course.kind is kind
    before = course.state
    assert course.on(event) or course.state is before


def test_a_pod_without_work_for_plugins_is_sent_at_once_and_bound_by_one_answer() -> None:
    course = Course()
    assert course.on(Permitted(has_work=False))
    assert isinstance(course.instruction, Send)
    assert course.on(Answered())
    assert course.ends == [BOUND]


LABELS: Final = st.fixed_dictionaries(
    {},
    optional={
        "permit": st.sampled_from(["wait", "refuse"]),
        "pre-bind": st.sampled_from(["raise", "write"]),
        "bind": st.just("mine"),
    },
)


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(LABELS, st.one_of(st.none(), st.sampled_from(sorted(FAULTS)))), min_size=1, max_size=4),
    st.lists(st.sampled_from(["allow", "reject", "delete", "time"]), max_size=8),
)
def test_what_is_reserved_is_bound_or_unreserved_once(
    pods: list[tuple[dict[str, str], str | None]], then: list[str]
) -> None:
    async def story(fixture: RunningScheduler) -> None:
        api, waiting = fixture.api, fixture.scheduler.state.view.waiting
        for number, (labels, fault) in enumerate(pods):
            if fault is not None:
                api.faults.rules.append(bindings(FAULTS[fault], times=2))
            api.store(make_pod(f"p{number}", labels=labels))
        await fixture.until_idle()
        for what in then:
            match what, next(iter(waiting), None):
                case "allow", found if found is not None:
                    found.allow("Recording")
                case "reject", found if found is not None:
                    found.reject("Recording", "not now")
                case "delete", _ if api.objects("pods"):
                    api.drop("pods", next(iter(api.objects("pods"))))
            await fixture.until_idle(7)
        api.faults.rules.clear()
        for key, pod in list(api.objects("pods").items()):
            if not pod.spec.node_name:
                api.drop("pods", key)
        await fixture.until_idle(200)

    fixture = simulate(story, one_node, recording)
    record = plugin_of(fixture).record
    assert record.count("reserve") == record.count("bound") + record.count("unreserve")


def test_a_node_that_comes_back_is_another_one() -> None:
    """Its deletion rejects who waits for it, so that nothing is bound by what was reserved before."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={"permit": "wait"}))
        await fixture.until_idle()
        fixture.api.drop("nodes", "a")
        await fixture.until_idle()
        assert fixture.scheduler.in_hand == 0

    fixture = simulate(story, one_node, recording)
    assert plugin_of(fixture).record.count("unreserve") == 1
