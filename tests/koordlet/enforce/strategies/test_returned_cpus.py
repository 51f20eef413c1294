"""Which CPUs all pods get back: tests/koordlet/enforce/test_offline_cpus.py has what becomes of that in the files."""

from __future__ import annotations

from koordinator.koordlet.enforce.strategies.returned_cpus import HotPlug, decide, folders, observe
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion

ALL, REST = frozenset({0, 1, 2, 3}), frozenset({0, 1, 2})
MINUTE = 60.0


def _after(*rounds: tuple[frozenset[int], frozenset[int], float]) -> frozenset[int]:
    """What has returned after these rounds: what kubepods has, what is online, and when that was."""
    state = HotPlug()
    for kubepods, online, now in rounds:
        state = observe(state, kubepods, online, now)
    return frozenset(state.returned)


def test_what_went_offline_returns_when_it_is_online() -> None:
    away = (ALL, ALL, 0.0), (REST, REST, 1.0)
    assert _after(*away) == frozenset()
    assert _after(*away, (REST, ALL, 2.0)) == {3}


def test_it_is_looked_after_until_all_pods_have_it_and_for_two_minutes() -> None:
    back = (ALL, ALL, 0.0), (REST, REST, 1.0), (REST, ALL, 2.0)
    assert _after(*back, (ALL, ALL, 2.0 + MINUTE)) == {3}
    assert _after(*back, (ALL, ALL, 2.0 + 2 * MINUTE)) == frozenset()
    assert _after(*back, (REST, ALL, 2.0 + 9 * MINUTE)) == {3}


def test_it_may_go_offline_again_before_all_pods_have_it() -> None:
    again = (ALL, ALL, 0.0), (REST, REST, 1.0), (REST, ALL, 2.0), (REST, REST, 3.0)
    assert _after(*again) == frozenset()
    assert _after(*again, (REST, ALL, 4.0)) == {3}


def test_what_kubepods_loses_while_it_is_online_does_not_return() -> None:
    assert _after((ALL, ALL, 0.0), (REST, ALL, 1.0), (REST, ALL, 2.0)) == frozenset()


def test_what_kubepods_never_had_does_not_return() -> None:
    assert _after((REST, ALL, 0.0), (REST, REST, 1.0), (REST, ALL, 2.0)) == frozenset()


def test_what_was_offline_from_the_beginning_belongs_to_a_kubepods_that_has_every_other_cpu() -> None:
    assert _after((REST, REST, 0.0), (REST, ALL, 1.0)) == {3}


def test_it_does_not_belong_to_a_kubepods_that_an_administrator_keeps_off_another_cpu() -> None:
    narrowed = REST - {0}
    assert _after((narrowed, REST, 0.0), (narrowed, ALL, 1.0)) == frozenset()
    assert _after((REST, REST, 0.0), (narrowed, ALL, 1.0)) == frozenset()


def test_several_return_one_after_the_other() -> None:
    assert _after((REST - {2}, REST - {2}, 0.0), (REST - {2}, REST, 1.0), (REST - {2}, ALL, 2.0)) == {2, 3}


def test_folders_get_it_in_addition_to_what_they_have() -> None:
    decision = decide(HotPlug(returned={3: 0.0}), {"kubepods": REST, "kubepods/burstable": frozenset({0})})
    assert decision.settings is not None
    assert {setting.target.folder: setting.value for setting in decision.settings} == {
        "kubepods": ALL,
        "kubepods/burstable": {0, 3},
    }


def test_best_effort_pods_are_left_to_cpu_suppress() -> None:
    layout = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
    pods = ["kubepods/podbank", "kubepods/burstable/podshop", "kubepods/besteffort/podbatch"]
    assert folders(layout, pods) == ["kubepods", "kubepods/burstable", "kubepods/podbank", "kubepods/burstable/podshop"]
