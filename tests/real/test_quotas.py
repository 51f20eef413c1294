"""Elastic quotas with our scheduler and with the Go original's, on the same API server: equal decisions, messages,
annotations and statuses."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.quota_other_settings import REVOKED, TREES, WITHOUT_SCALING
from tests.real.quota_runs import Outcome, Scenario, connected, play, prepare, running, watched_quotas
from tests.real.quota_scenarios import BY_MAX, SCENARIOS, WITH_PARENTS
from tests.real.side_by_side import Parts, Who, both, cases, cut, two_planes


def _differences(scenario: Scenario, ours: Outcome, theirs: Outcome) -> list[str]:
    """Where the two disagree, in words. Pods of one kind take turns: how many of them end how must be the same."""
    one, other = _endings(scenario, ours), _endings(scenario, theirs)
    found = [f"{scenario.name}: only ours {count} × {what}" for what, count in (one - other).items()]
    found += [f"{scenario.name}: only the original {count} × {what}" for what, count in (other - one).items()]
    for name in sorted({*ours.quotas, *theirs.quotas}):
        for what in scenario.compared:
            mine, original = ours.quotas[name][what], theirs.quotas[name][what]
            if mine != original:
                found.append(f"{scenario.name}: {what} of {name}: ours {mine}, original {original}")
    reported, reported_by_original = _events(ours), _events(theirs)
    found += [f"{scenario.name}: only ours has the event {each}" for each in sorted(reported - reported_by_original)]
    found += [
        f"{scenario.name}: only the original has the event {each}" for each in sorted(reported_by_original - reported)
    ]
    return found


def _events(outcome: Outcome) -> set[tuple[str, str, str, str]]:
    """Of pods of one kind it is not certain which one waits, and whether any has waited for a while before all of them
    got a node; and only ours tells the author of a quota what is wrong with it."""
    waiting = {_kind_of(name) for name, message in outcome.pods.items() if message}
    return {
        (kind, _kind_of(name), type_, reason)
        for kind, name, type_, reason in outcome.events
        if reason != "InvalidQuota" and (reason != "FailedScheduling" or _kind_of(name) in waiting)
    }


def _kind_of(name: str) -> str:
    return name.rpartition("-")[0] or name


def _endings(scenario: Scenario, outcome: Outcome) -> Counter[tuple[str, str]]:
    return Counter(
        (_kind_of(name), _comparable(message, whole=scenario.compares_preemption))
        for name, message in outcome.pods.items()
    )


def _comparable(message: str, *, whole: bool) -> str:
    """Without the amounts at the moment of the last attempt, which is another one; and the names of exceeded resources
    come in the order of a Go map."""
    message = re.sub(r"runtime: \S+, used: \S+, pod's", "pod's", message)
    message = re.sub(r"for preemptor pod [^ .,]+", "for a pod", message)
    message = re.sub(r"Dimensions: \[([^\]]*)\]", lambda found: f"Dimensions: {sorted(found[1].split())}", message)
    return message if whole else message.partition(" preemption:")[0]


@dataclass(frozen=True)
class Table:
    scenarios: Sequence[Scenario]
    args: Mapping[str, Any] = field(default_factory=dict)


_TABLES: Final = {
    **{f"by runtime, {part}": Table(scenarios) for part, scenarios in cut(SCENARIOS, 6).items()},
    "by max, part 6": Table(BY_MAX, {"enableRuntimeQuota": False}),
    "with parents, part 6": Table(WITH_PARENTS, {"enableRuntimeQuota": False, "enableCheckParentQuota": True}),
    "trees, part 6": Table(TREES, {"gates": "MultiQuotaTree=true"}),
    "without scaling, part 7": Table(WITHOUT_SCALING, {"enableMinQuotaScale": False}),
    "revoked, part 8": Table(REVOKED, {"monitorAllQuotas": True, "delayEvictTime": "1s"}),
}
_SLOW: Final = dict.fromkeys(("without scaling, part 7", "revoked, part 8"), pytest.mark.slow)
_TRIES: Final = 3
"""The original counts a pod's request when its informer shows it, late where the machine is busy."""

Differences = Mapping[str, Sequence[str]]
"""By scenario, for those that end differently."""


@pytest.fixture(scope="module")
def differences(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Parts[Differences]:
    def play_part(part: str) -> Differences:
        folder, table = tmp_path_factory.mktemp("quotas"), _TABLES[part]
        with two_planes(real_programs, folder) as planes:
            return asyncio.run(_different_in(table, real_programs, planes, folder))

    return Parts(play_part)


async def _different_in(
    table: Table, programs: RealPrograms, planes: Mapping[Who, ControlPlane], folder: Path
) -> Differences:
    await both(lambda who: _prepare(planes[who]))
    left: Differences = {each.name: [] for each in table.scenarios}
    for _ in range(_TRIES):
        played = [each for each in table.scenarios if each.name in left]
        left = await _different(programs, planes, folder, played, table.args)
        if not left:
            break
    return left


async def _prepare(plane: ControlPlane) -> None:
    async with connected(plane) as client:
        await prepare(client)


async def _different(
    programs: RealPrograms,
    planes: Mapping[Who, ControlPlane],
    folder: Path,
    scenarios: Sequence[Scenario],
    args: Mapping[str, Any],
) -> Differences:
    ours: dict[str, Outcome] = {}

    async def play_all(who: Who) -> dict[str, Outcome]:
        found = ours if who == "ours" else {}
        with running(who, programs, planes[who], folder / who, **args):
            async with connected(planes[who]) as client, watched_quotas(client) as watched:
                for each in scenarios:
                    # The original need not be waited for any longer once it is where ours has come to.
                    expected = partial(ours.get, each.name) if who == "original" else None
                    found[each.name] = await play(watched, each, expected)
        return found

    _, theirs = await both(play_all)
    found = {each.name: _differences(each, ours[each.name], theirs[each.name]) for each in scenarios}
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    ("part", "name"),
    cases({part: [each.name for each in table.scenarios] for part, table in _TABLES.items()}, marks=_SLOW),
)
def test_pods_and_quotas_end_as_with_the_original(differences: Parts[Differences], part: str, name: str) -> None:
    assert differences[part].get(name, []) == []
