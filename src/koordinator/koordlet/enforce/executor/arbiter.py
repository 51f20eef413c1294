"""Which of the desired settings for each value of the kernel wins, and in which order the winners are written.

Pure: the inputs are desired settings and the kernel's present values, the results are settings and steps.

*Which one wins.* The one with the highest priority. Those of the same priority are joined where the file has a meaning
for that: the lower limit, the CPUs in both sets, the higher protection, all the tasks. Where it has none, or two sets
have no CPU in common, the owner whose name comes first wins, and of two of one owner always the same. Then a child is
cut to what its parent has: its setting, or its present value where nobody desires one.

*In which order.* The kernel refuses a child that has more than its parent at any moment, so first everything is widened
from the top down (to what both the present and the new value allow), then narrowed from the bottom up. Every prefix of
the steps leaves each child within its parent, so that the order holds when the agent is killed between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Overridden, Setting
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_BURST, CPU_QUOTA, MEMORY_LIMIT, KernelFile, Nesting, Target, Value
from koordinator.node.kernel_files import RESCTRL_TASKS as TASKS


@dataclass(frozen=True, slots=True)
class Step:
    """One value to write."""

    target: Target
    value: Value


Present = Mapping[Target, Value | None]
"""What the kernel shows; None where it shows nothing of the target."""


def decide(desired: Iterable[DesiredSetting], present: Present) -> dict[Target, Setting]:
    """A setting for every target that anybody desires one for, parents before their children."""
    by_target: dict[Target, list[DesiredSetting]] = {}
    for each in desired:
        by_target.setdefault(each.target, []).append(each)
    settings: dict[Target, Setting] = {}
    for target in sorted(by_target, key=_from_the_top):
        setting = elect(by_target[target])
        settings[target] = _within_parent(setting, settings, present)
    return settings


def order(settings: Mapping[Target, Setting], present: Present) -> list[Step]:
    """The steps from what the kernel shows to the settings; none for what is there already."""
    between: dict[Target, Value] = {}
    widening: list[Step] = []
    for target in sorted(settings, key=_from_the_top):
        value, shown = settings[target].value, present.get(target)
        step_value = value if shown is None else _widest(target.file, shown, value)
        between[target] = step_value
        if step_value != shown:
            widening.append(Step(target, step_value))
    narrowing = [
        Step(target, settings[target].value)
        for target in sorted(settings, key=_from_the_top, reverse=True)
        if settings[target].value != between[target]
    ]
    # The kernel takes no burst above the quota: it is lowered before any quota is, and raised after all of them.
    bursts = [step for step in widening if step.target.file is CPU_BURST]
    lowered = [step for step in bursts if _size(step.value) <= _size(present.get(step.target) or 0)]
    raised = [step for step in bursts if step not in lowered]
    others = [step for step in widening if step.target.file is not CPU_BURST]
    return lowered + others + narrowing + raised


def ancestors(target: Target) -> list[Target]:
    """The same file in the folders above, nearest first; none for a file whose parents mean nothing to it."""
    if target.file.nesting not in (Nesting.LIMIT, Nesting.SET):
        return []
    parts = target.folder.split("/")
    return [Target(target.file, "/".join(parts[:length]), target.part) for length in range(len(parts) - 1, 0, -1)]


def allows(file: KernelFile, parent: Value | None, child: Value | None) -> bool:
    """Whether a child may have its value below a parent with that one."""
    if parent is None or child is None:
        return True
    if file.nesting is Nesting.SET and isinstance(parent, frozenset) and isinstance(child, frozenset):
        return child <= parent
    if file.nesting is Nesting.LIMIT:
        # A child without a limit of its own has its parent's.
        return child == NO_LIMIT or _size(child) <= _size(parent)
    return True


def _from_the_top(target: Target) -> tuple[str, int, str, str]:
    return (target.file.key, target.folder.count("/") + bool(target.folder), target.folder, target.part)


def elect(desired: list[DesiredSetting]) -> Setting:
    """What wins for one target, whatever its parents have."""
    ranked = sorted(desired, key=lambda each: (-each.priority, each.owner, _text(each.value)))
    winner, value, joined = ranked[0], ranked[0].value, [ranked[0]]
    overridden: list[Overridden] = []
    for each in ranked[1:]:
        if each.priority < winner.priority:
            why = f"{winner.owner} has priority {winner.priority}, above {each.priority}"
        elif (both := _join(winner.target.file, value, each.value)) is None:
            why = f"cannot be joined with what {winner.owner} desires, whose name comes first"
        else:
            value = both
            joined.append(each)
            continue
        overridden.append(Overridden(each, why))
    for each in joined:
        if each.value != value:
            others = " and ".join(other.owner for other in joined if other is not each)
            overridden.append(Overridden(each, f"joined with {others}"))
    return Setting(winner.target, value, winner, tuple(each.owner for each in joined), tuple(overridden))


def _text(value: Value) -> str:
    return str(sorted(value) if isinstance(value, frozenset) else value)


def _join(file: KernelFile, one: Value, other: Value) -> Value | None:
    if one == other:
        return one
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        return (one | other) if file is TASKS else (one & other) or None
    if file in (CPU_QUOTA, MEMORY_LIMIT):
        return min(one, other, key=_size)
    if file.nesting is Nesting.PROTECTION:
        return max(one, other, key=_size)
    return None


def _within_parent(setting: Setting, settings: Mapping[Target, Setting], present: Present) -> Setting:
    value, limited_by = setting.value, ""
    for parent in ancestors(setting.target):
        above = settings[parent].value if parent in settings else present.get(parent)
        if not allows(setting.target.file, above, value):
            assert above is not None
            value, limited_by = _cut(above, value), f"{parent.folder} has no more than that"
    return replace(setting, value=value, limited_by=limited_by) if limited_by else setting


def _cut(above: Value, value: Value) -> Value:
    if isinstance(above, frozenset) and isinstance(value, frozenset):
        return (value & above) or above
    return above


def _widest(file: KernelFile, one: Value, other: Value) -> Value:
    if isinstance(one, frozenset) and isinstance(other, frozenset) and file.nesting is Nesting.SET:
        return one | other
    if file.nesting in (Nesting.LIMIT, Nesting.PROTECTION):
        return max(one, other, key=_size)
    return other


def _size(value: Value) -> float:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} has no size")
    return inf if value == NO_LIMIT else value
