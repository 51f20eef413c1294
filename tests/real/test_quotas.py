"""Elastic quotas with our scheduler and with the Go original's, on the same API server: equal verdicts, messages,
annotations and statuses."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.quota_other_settings import REVOKED, TREES, WITHOUT_SCALING
from tests.real.quota_runs import Outcome, Scenario, clean, connected, play, prepare, running
from tests.real.quota_scenarios import BY_MAX, SCENARIOS, WITH_PARENTS


async def run(
    plane: ControlPlane, scenarios: Sequence[Scenario], known: Mapping[str, Outcome], *, prepares: bool
) -> dict[str, Outcome]:
    async with connected(plane) as client:
        if prepares:
            await prepare(client)
        await clean(client)
        return {each.name: await play(client, each, known.get(each.name)) for each in scenarios}


def differences(scenario: Scenario, ours: Outcome, theirs: Outcome) -> list[str]:
    """Where the two disagree, in words. Pods of one kind take turns: how many of them end how must be the same."""
    one, other = _endings(scenario, ours), _endings(scenario, theirs)
    found = [f"{scenario.name}: only ours {count} × {what}" for what, count in (one - other).items()]
    found += [f"{scenario.name}: only the original {count} × {what}" for what, count in (other - one).items()]
    for name in sorted({*ours.quotas, *theirs.quotas}):
        for field in scenario.compared:
            mine, original = ours.quotas[name][field], theirs.quotas[name][field]
            if mine != original:
                found.append(f"{scenario.name}: {field} of {name}: ours {mine}, original {original}")
    told, told_by_original = _events(ours), _events(theirs)
    found += [f"{scenario.name}: only ours has the event {each}" for each in sorted(told - told_by_original)]
    found += [f"{scenario.name}: only the original has the event {each}" for each in sorted(told_by_original - told)]
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


@pytest.mark.parametrize(
    ("scenarios", "args"),
    [
        # They mostly wait: in parts, they are played side by side.
        pytest.param(SCENARIOS[::3], {}, id="by runtime, part 0"),
        pytest.param(SCENARIOS[1::3], {}, id="by runtime, part 1"),
        pytest.param(SCENARIOS[2::3], {}, id="by runtime, part 2"),
        pytest.param(BY_MAX, {"enableRuntimeQuota": False}, id="by max"),
        pytest.param(WITH_PARENTS, {"enableRuntimeQuota": False, "enableCheckParentQuota": True}, id="with parents"),
        pytest.param(WITHOUT_SCALING, {"enableMinQuotaScale": False}, id="without scaling", marks=pytest.mark.slow),
        pytest.param(TREES, {"gates": "MultiQuotaTree=true"}, id="trees, part 3"),
        pytest.param(REVOKED, {"monitorAllQuotas": True, "delayEvictTime": "1s"}, id="revoked", marks=pytest.mark.slow),
    ],
)
def test_pods_and_quotas_end_as_with_the_original(
    scenarios: Sequence[Scenario],
    args: dict[str, Any],
    plane: ControlPlane,
    real_programs: RealPrograms,
    tmp_path: Path,
) -> None:
    def different(played: Sequence[Scenario], *, is_first: bool) -> dict[str, list[str]]:
        with running("ours", real_programs, plane, tmp_path, **args):
            ours = asyncio.run(run(plane, played, {}, prepares=is_first))
        with running("original", real_programs, plane, tmp_path, **args):
            theirs = asyncio.run(run(plane, played, ours, prepares=False))
        found = {each.name: differences(each, ours[each.name], theirs[each.name]) for each in played}
        return {name: lines for name, lines in found.items() if lines}

    wrong = different(scenarios, is_first=True)
    for _ in range(2):
        if wrong:
            # The original counts a pod's request when its informer shows it, late where the machine is busy.
            wrong = different([each for each in scenarios if each.name in wrong], is_first=False)
    assert not wrong, "\n".join(line for lines in wrong.values() for line in lines)
