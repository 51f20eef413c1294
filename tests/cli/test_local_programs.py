"""The command lines of a local cluster's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.cli.local_cluster.programs import LocalClusterOptions, simulated_nodes


@pytest.mark.parametrize(("speed", "said"), [(None, []), (60.0, ["--speed=60.0"])])
def test_a_scenario_keeps_its_speed_unless_another_is_asked_for(speed: float | None, said: list[str]) -> None:
    here = Path("here")
    options = LocalClusterOptions(
        data=here,
        kubeconfig=here / "kubeconfig",
        port=0,
        nodes=1,
        scheduler_port=1,
        manager_port=2,
        manager_health_port=3,
        webhook_port=4,
        scenario=here / "scenario.yaml",
        speed=speed,
    )

    command = simulated_nodes(options).arguments

    assert [each for each in command if each.startswith("--speed")] == said
