"""The command lines of a local cluster's programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from koordinator.cli.local_cluster.programs import (
    ACCOUNTS,
    LocalClusterOptions,
    api_server,
    controllers,
    descheduler,
    manager,
    scheduler,
    simulated_nodes,
)
from koordinator.cli.main import main, make_parser
from koordinator.cli.up import ports_of
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import load_configuration
from koordinator.descheduler.main import BUILT_IN

_HERE = Path("here")
_OPTIONS = LocalClusterOptions(
    data=_HERE,
    kubeconfig=_HERE / "kubeconfig",
    port=0,
    nodes=1,
    scheduler_port=1,
    manager_port=2,
    manager_health_port=3,
    webhook_port=4,
    scenario=_HERE / "scenario.yaml",
)


def _flags_of_nodes(flag: str, options: LocalClusterOptions) -> list[str]:
    return [each for each in simulated_nodes(options).arguments if each.startswith(flag)]


@pytest.mark.parametrize(("pace", "said"), [("", []), ("default/pace", ["--pace=default/pace"])])
def test_a_scenario_keeps_its_speed_unless_something_sets_the_pace(pace: str, said: list[str]) -> None:
    assert _flags_of_nodes("--pace", replace(_OPTIONS, pace=pace)) == said


@pytest.mark.parametrize("leader_election", [True, False])
def test_the_manager_takes_part_in_a_leader_election_unless_it_is_the_only_one(leader_election: bool) -> None:
    arguments = manager(replace(_OPTIONS, leader_election=leader_election)).arguments
    assert f"--enable-leader-election={str(leader_election).lower()}" in arguments


@pytest.mark.parametrize(("koordlets", "said"), [(None, []), (0, ["--koordlets=0"]), (3, ["--koordlets=3"])])
def test_as_many_nodes_run_koordlet_as_were_requested(koordlets: int | None, said: list[str]) -> None:
    assert _flags_of_nodes("--koordlets", replace(_OPTIONS, koordlets=koordlets)) == said


@pytest.mark.parametrize("text", ["-1", "some", "1.5"])
def test_a_number_of_koordlets_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["up", f"--koordlets={text}"])

    assert f"--koordlets: {text!r}: a whole number of at least 0 is needed" in capsys.readouterr().err


def test_the_descheduler_without_a_configuration_evicts_nothing_and_moves_pods_of_both_schedulers(
    tmp_path: Path,
) -> None:
    arguments = descheduler(replace(_OPTIONS, data=tmp_path, descheduler_port=5)).arguments
    assert "--feature-gates=NodeDrain=true" in arguments
    (path,) = (each.removeprefix("--config=") for each in arguments if each.startswith("--config="))
    configuration = load_configuration(Path(path), Catalogue(BUILT_IN, lambda: ()))
    assert (str(configuration.healthz), str(configuration.metrics)) == ("127.0.0.1:5", "127.0.0.1:5")
    (profile,) = json.loads(Path(path).read_text())["profiles"]
    (migration,) = profile["pluginConfig"]
    assert migration["args"]["schedulerNames"] == ["koord-scheduler", "default-scheduler"]
    assert "balance" not in profile["plugins"]


def test_the_descheduler_with_a_configuration_is_told_no_port() -> None:
    arguments = descheduler(replace(_OPTIONS, descheduler_config=_HERE / "descheduler.yaml")).arguments
    assert f"--config={_HERE / 'descheduler.yaml'}" in arguments
    assert not [each for each in arguments if each.startswith("--port")]


def test_no_two_programs_of_a_local_cluster_have_the_same_port_by_default() -> None:
    ports = ports_of(make_parser().parse_args(["up"]))
    assert len(set(ports.values())) == len(ports)


_STARTED = {
    "nodes": simulated_nodes,
    "manager": manager,
    "scheduler": scheduler,
    "descheduler": descheduler,
    "controllers": controllers,
}


@pytest.mark.parametrize("name", _STARTED)
def test_where_roles_decide_a_program_has_an_identity_of_its_own(name: str, tmp_path: Path) -> None:
    shared = replace(_OPTIONS, data=tmp_path)
    options = replace(shared, authorization_mode=AuthorizationMode.RBAC)
    assert f"--kubeconfig={tmp_path}/identities/{name}.kubeconfig" in _STARTED[name](options).arguments
    assert f"--kubeconfig={_HERE}/kubeconfig" in _STARTED[name](shared).arguments
    assert name in ACCOUNTS


def test_the_api_server_is_told_who_decides() -> None:
    options = replace(_OPTIONS, authorization_mode=AuthorizationMode.RBAC)
    assert "--authorization-mode=RBAC" in api_server(options).arguments


def test_of_a_cluster_that_is_there_roles_cannot_be_switched_on(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["up", "--only=scheduler", "--kubeconfig=there", "--authorization-mode=rbac"]
    assert main(arguments) != 0
    assert "--authorization-mode" in capsys.readouterr().err


def test_a_mode_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["up", "--authorization-mode=ABAC"])
    assert "allowed are 'AlwaysAllow', 'RBAC', 'Node,RBAC'" in capsys.readouterr().err
