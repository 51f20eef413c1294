"""Step after step of policy on a real kernel with cgroup version 2: every file shows what the specification says.

The Go original has no response to compare with there: user-mode Linux runs no two koordlets with a control plane in a
minute. So what is expected is computed from the formulas of the specification, apart from the code under test. What
needs cpuset or pressure, which that kernel lacks, is in the unit tests.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.real.cgroup2_kernel import result_on_cgroup2
from tests.real.cgroup2_steps.expectations import Setting, expected
from tests.real.cgroup2_steps.node_pods import LATE_POD, PodCase, pods
from tests.real.cgroup2_steps.steps import STEPS, Step, in_force

_BURNING = "kubepods/burstable/poduid-system/system-main"


@pytest.fixture(scope="module")
def taken() -> list[dict[str, Any]]:
    """What files showed before and after each step."""
    steps: list[dict[str, Any]] = result_on_cgroup2("tests.real.cgroup2_steps.guest")["steps"]
    return steps


def settings() -> list[Setting]:
    """The node in each step."""
    found, present, is_burning = [], pods(), False
    for step, policy in zip(STEPS, in_force(STEPS), strict=True):
        if step.event == "come":
            present = [*present, LATE_POD]
        elif step.event == "go":
            present = [pod for pod in present if pod is not LATE_POD]
        is_burning = step.event == "burn" or (is_burning and step.event != "rest")
        # Above half of the shared CPUs in use, nobody bursts.
        throttled = frozenset({_BURNING} if is_burning and step.cores < 1 else ())
        ratio = float(step.ratio) if step.ratio is not None and step.ratio != "nonsense" else None
        found.append(Setting(policy, _annotated(present, step), ratio, step.cores, step.closed, throttled))
    return found


def _annotated(present: list[PodCase], step: Step) -> list[PodCase]:
    return [
        PodCase(
            pod.name,
            pod.qos,
            pod.kubernetes_qos,
            pod.containers,
            {**pod.annotations, **step.annotations.get(pod.name, {})},
        )
        for pod in present
    ]


def _differences(setting: Setting, step: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Path -> what is expected, and what there is."""
    wanted, there = expected(setting, step["before"]), step["after"]
    return {path: (wanted.get(path, ""), there.get(path, "")) for path in there if wanted.get(path) != there[path]}


def test_every_step_leaves_what_the_specification_says(taken: list[dict[str, Any]]) -> None:
    wrong = {
        f"{number} {step['name']}": found
        for number, (setting, step) in enumerate(zip(settings(), taken, strict=True))
        if (found := _differences(setting, step))
    }
    assert wrong == {}, json.dumps(wrong, indent=1)


def test_most_steps_show_in_some_file(taken: list[dict[str, Any]]) -> None:
    """Or the table would be none."""
    assert len(taken) >= 60
    assert sum(step["after"] != step["before"] for step in taken) >= len(taken) * 3 // 4
