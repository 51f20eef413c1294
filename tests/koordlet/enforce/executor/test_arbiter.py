"""Who wins, in which order the winners are written, and that every loser is told why."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.koordlet.enforce.executor.arbiter import allows, ancestors, decide, order
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.node.kernel_files import (
    CPU_BURST,
    CPU_QUOTA,
    CPUSET,
    MEMORY_LOW,
    RESCTRL_TASKS,
    Target,
    Value,
)
from tests.examples import examples

ROOT, POD, CONTAINER = "kubepods", "kubepods/pod1", "kubepods/pod1/c1"


def desire(owner: str, target: Target, value: Value, priority: Priority = Priority.POLICY) -> DesiredSetting:
    return DesiredSetting(owner, target, value, f"{owner} has a reason", priority)


def test_a_pods_own_setting_goes_before_the_nodes() -> None:
    target = Target(CPU_BURST, POD)
    setting = decide([desire("node", target, 1), desire("pod", target, 2, Priority.POD)], {})[target]
    assert (setting.value, setting.winner.owner) == (2, "pod")
    (lost,) = setting.overridden
    assert "pod has priority 20, above 10" in lost.why


def test_the_lower_of_two_quotas_is_what_both_allow() -> None:
    target = Target(CPU_QUOTA, POD)
    setting = decide([desire("a", target, -1), desire("b", target, 50_000)], {})[target]
    assert (setting.value, setting.owners) == (50_000, ("a", "b"))


def test_everybody_whose_limit_was_lowered_is_told_by_whom() -> None:
    target = Target(CPU_QUOTA, POD)
    setting = decide([desire("a", target, -1), desire("b", target, 50_000), desire("c", target, 1000)], {})[target]
    assert {each.desired.owner: each.why for each in setting.overridden} == {
        "a": "joined with b and c",
        "b": "joined with a and c",
    }


def test_two_desired_of_one_owner_end_the_same_in_either_order() -> None:
    target = Target(CPUSET, POD)
    one, other = desire("a", target, frozenset({0})), desire("a", target, frozenset({1}))
    assert decide([one, other], {})[target].value == decide([other, one], {})[target].value


def test_cpus_that_both_want_are_joined() -> None:
    target = Target(CPUSET, POD)
    setting = decide([desire("a", target, frozenset({0, 1})), desire("b", target, frozenset({1, 2}))], {})[target]
    assert setting.value == frozenset({1})


def test_cpu_sets_without_a_common_cpu_go_by_the_owners_name() -> None:
    target = Target(CPUSET, POD)
    setting = decide([desire("b", target, frozenset({2})), desire("a", target, frozenset({0}))], {})[target]
    assert setting.value == frozenset({0})
    assert "cannot be joined" in setting.overridden[0].why


def test_the_higher_protection_protects_both() -> None:
    target = Target(MEMORY_LOW, POD)
    assert decide([desire("a", target, 0), desire("b", target, 4096)], {})[target].value == 4096


def test_all_tasks_are_desired_together() -> None:
    target = Target(RESCTRL_TASKS, "LS")
    assert decide([desire("a", target, frozenset({1})), desire("b", target, frozenset({2}))], {})[
        target
    ].value == frozenset({1, 2})


def test_a_child_is_cut_to_what_its_parent_shows() -> None:
    target = Target(CPU_QUOTA, CONTAINER)
    setting = decide([desire("a", target, 200_000)], {Target(CPU_QUOTA, POD): 100_000})[target]
    assert setting.value == 100_000
    assert POD in setting.limited_by


def test_a_child_without_a_limit_of_its_own_has_its_parents() -> None:
    target = Target(CPU_QUOTA, CONTAINER)
    assert decide([desire("a", target, -1)], {Target(CPU_QUOTA, POD): 100_000})[target].value == -1


def test_a_parent_is_widened_before_its_child_and_narrowed_after_it() -> None:
    parent, child = Target(CPUSET, POD), Target(CPUSET, CONTAINER)
    present: dict[Target, Value | None] = {parent: frozenset({0, 1}), child: frozenset({0, 1})}
    desired = [desire("a", parent, frozenset({2, 3})), desire("a", child, frozenset({2, 3}))]
    steps = order(decide(desired, present), present)
    wide, narrow = frozenset({0, 1, 2, 3}), frozenset({2, 3})
    assert [(step.target, step.value) for step in steps] == [
        (parent, wide),
        (child, wide),
        (child, narrow),
        (parent, narrow),
    ]


def test_a_burst_is_never_above_the_quota_between_two_steps() -> None:
    burst, quota = Target(CPU_BURST, POD), Target(CPU_QUOTA, POD)
    for before, after in (((5_000, 5_000), (10_000, 30_000)), ((10_000, 30_000), (5_000, 5_000))):
        state: dict[Target, Value | None] = {burst: before[0], quota: before[1]}
        desired = [desire("a", burst, after[0]), desire("a", quota, after[1])]
        for step in order(decide(desired, state), dict(state)):
            state[step.target] = step.value
            shown, limit = state[burst], state[quota]
            assert isinstance(shown, int)
            assert isinstance(limit, int)
            assert shown <= limit
        assert (state[burst], state[quota]) == after


FOLDERS = [ROOT, POD, CONTAINER, "kubepods/pod1/c2", "kubepods/pod2", "kubepods/pod2/c3"]
quotas = st.one_of(st.just(-1), st.integers(1000, 400_000))
cpus = st.frozensets(st.integers(0, 7), min_size=1)
owners = st.sampled_from(["a", "b", "c"])
priorities = st.sampled_from(list(Priority))


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[DesiredSetting], dict[Target, Value | None]]:
    """Desired settings, and a kernel in which no child is wider than its parent."""
    file = draw(st.sampled_from([CPU_QUOTA, CPUSET]))
    values: st.SearchStrategy[Value] = quotas if file is CPU_QUOTA else cpus
    present: dict[Target, Value | None] = {}
    for folder in FOLDERS:
        target = Target(file, folder)
        drawn: Value | None = draw(values)
        above = [present[each] for each in ancestors(target)]
        if not all(allows(file, each, drawn) for each in above):
            drawn = above[0]
        present[target] = drawn
    more = draw(st.lists(st.sampled_from(FOLDERS), max_size=6))
    desired = [
        DesiredSetting(draw(owners), Target(file, folder), draw(values), "why", draw(priorities))
        for folder in (*FOLDERS, *more)
    ]
    return desired, present


@settings(max_examples=examples(25))
@given(situations())
def test_no_step_ever_leaves_a_child_wider_than_its_parent(
    situation: tuple[list[DesiredSetting], dict[Target, Value | None]],
) -> None:
    desired, present = situation
    state = dict(present)
    settings = decide(desired, present)
    for step in order(settings, present):
        state[step.target] = step.value
        for target, value in state.items():
            for above in ancestors(target):
                assert allows(target.file, state[above], value)


@settings(max_examples=examples(25))
@given(situations())
def test_the_steps_end_at_the_settings(situation: tuple[list[DesiredSetting], dict[Target, Value | None]]) -> None:
    desired, present = situation
    settings = decide(desired, present)
    state = dict(present)
    for step in order(settings, present):
        state[step.target] = step.value
    assert all(state[target] == setting.value for target, setting in settings.items())


@settings(max_examples=examples(25))
@given(situations())
def test_every_desired_setting_is_granted_or_told_why_not(
    situation: tuple[list[DesiredSetting], dict[Target, Value | None]],
) -> None:
    desired, present = situation
    settings = decide(desired, present)
    for each in desired:
        setting = settings[each.target]
        granted = setting.value == each.value
        explained = any(other.desired == each and other.why for other in setting.overridden) or bool(setting.limited_by)
        assert granted or explained


@settings(max_examples=examples(25))
@given(situations(), st.randoms())
def test_the_order_in_which_desired_come_does_not_matter(
    situation: tuple[list[DesiredSetting], dict[Target, Value | None]], random: object
) -> None:
    desired, present = situation
    values = {target: setting.value for target, setting in decide(desired, present).items()}
    shuffled = sorted(desired, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert {target: setting.value for target, setting in decide(shuffled, present).items()} == values
