"""How a pod ends by its command."""

from __future__ import annotations

import pytest

from koordinator.cluster.nodes.pod_commands import Ending, ending_by_command
from koordinator.cluster.nodes.simulated_pod import SimulatedContainer, SimulatedPod, SimulatedPodSpec


def pod_with(*commands: tuple[str, ...]) -> SimulatedPod:
    containers = tuple(SimulatedContainer(command=command) for command in commands)
    return SimulatedPod(spec=SimulatedPodSpec(containers=containers))


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        (("true",), Ending(0.0)),
        (("/bin/echo", "a", "b"), Ending(0.0)),
        (("false",), Ending(0.0, 1)),
        (("sleep", "5"), Ending(5.0)),
        (("sleep", "1.5m"), Ending(90.0)),
        (("sleep", "infinity"), None),
        (("perl", "-e", "1"), None),
        ((), None),
        (("/bin/sh", "-c", "echo hello; sleep 3 && exit 42"), Ending(3.0, 42)),
        (("sh", "-c", "echo 'a; b'\nsleep 2\n"), Ending(2.0)),
        (("sh", "-c", "false && sleep 10; sleep 1"), Ending(1.0)),
        (("sh", "-c", "exit"), Ending(0.0)),
        (("sh", "-c", "exit $CODE"), None),
        (("sh", "-c", "sleep 1 | cat"), None),
        (("sh", "-c", "echo $(date)"), None),
        (("sh", "-c", "echo 'open"), None),
        (("sh", "script.sh"), None),
    ],
)
def test_the_ending(command: tuple[str, ...], ending: Ending | None) -> None:
    assert ending_by_command(pod_with(command)) == ending


def test_arguments_count_too() -> None:
    container = SimulatedContainer(command=("sleep",), args=("7",))
    assert ending_by_command(SimulatedPod(spec=SimulatedPodSpec(containers=(container,)))) == Ending(7.0)


def test_a_pod_ends_with_its_last_container() -> None:
    assert ending_by_command(pod_with(("sleep", "5"), ("false",))) == Ending(5.0, 1)
    assert ending_by_command(pod_with(("sleep", "5"), ("nginx",))) is None


def test_of_pods_without_containers_nothing_is_known() -> None:
    assert ending_by_command(SimulatedPod()) is None
