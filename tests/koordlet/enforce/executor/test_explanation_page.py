"""What /enforcement says of a file."""

from __future__ import annotations

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.executor.explanation_page import document
from koordinator.node.kernel_files import CPUSET, Target
from tests.koordlet.enforce.executor.fake_kernel import FakeKernel


def test_it_names_the_winner_the_losers_and_the_outcome() -> None:
    kernel, target = FakeKernel(), Target(CPUSET, "kubepods/pod1")
    kernel.add(target, frozenset({0, 1}))
    executor = kernel.executor(ManualClock())
    executor.submit("node", [DesiredSetting("node", target, frozenset({0}), "the policy")])
    executor.submit("pod", [DesiredSetting("pod", target, frozenset({1}), "its allocation", Priority.POD)])
    executor.apply()
    (explanation,) = executor.explanations()
    assert document(explanation) == {
        "path": "/sys/fs/cgroup/cpuset/kubepods/pod1/cpuset.cpus",
        "part": "",
        "value": [1],
        "outcome": "written",
        "detail": "",
        "failures": 0,
        "owners": ["pod"],
        "reason": "its allocation",
        "limitedBy": "",
        "lost": [
            {
                "owner": "node",
                "target": "kubepods/pod1 cpuset.cpus",
                "value": [0],
                "reason": "the policy",
                "priority": "policy",
                "why": "pod has priority 20, above 10",
            }
        ],
    }
