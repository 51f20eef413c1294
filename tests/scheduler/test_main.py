"""The program before it reaches a cluster: configuration in, messages out."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import load_configuration
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.main import main
from koordinator.scheduler.plugins.table import BUILT_IN

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false, leaseDuration: 20s}
profiles:
  - schedulerName: one
    plugins:
      filter: {enabled: [{name: LoadAwareScheduling}]}
  - schedulerName: two
    plugins:
      score: {enabled: [{name: LoadAwareScheduling, weight: 7}]}
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION)
    return path


def test_profiles_have_instances_of_their_own(configuration: Path) -> None:
    one, two = build_profiles(load_configuration(configuration), BUILT_IN, ClusterView(NodeColumns()))
    assert one.plugins["LoadAwareScheduling"] is not two.plugins["LoadAwareScheduling"]
    assert one.filter[-1].name == "LoadAwareScheduling"
    assert (two.score[-1][0].name, two.score[-1][1]) == ("LoadAwareScheduling", 7)


def test_a_written_configuration_means_the_same(configuration: Path, tmp_path: Path) -> None:
    written = tmp_path / "written.yaml"
    assert main([f"--config={configuration}", f"--write-config-to={written}"]) == 0
    before, after = load_configuration(configuration), load_configuration(written)
    assert [profile.order for profile in after.profiles] == [profile.order for profile in before.profiles]
    assert after.document.leader_election == before.document.leader_election


def test_a_flag_switches_profiles_off_where_no_file_does(tmp_path: Path) -> None:
    written = tmp_path / "written.yaml"
    assert main(["--profiling=false", f"--write-config-to={written}"]) == 0
    assert not load_configuration(written).document.enable_profiling


def test_a_mistake_in_the_configuration_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION.replace("LoadAwareScheduling", "LoadAwareSchedulin", 1))
    assert main([f"--config={path}"]) == 1
    error = capsys.readouterr().err
    assert "LoadAwareSchedulin'" in error
    assert len([line for line in error.splitlines() if line.startswith("koord-scheduler:")]) == 1
