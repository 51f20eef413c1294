"""The command line of koord-scheduler."""

from __future__ import annotations

from datetime import timedelta

import pytest

from koordinator.scheduler.options import parse_options

CHART = (
    "--port=10251",
    "--authentication-skip-lookup=true",
    "--v=4",
    "--feature-gates=ResizePod=true,SyncBarrier=true",
    "--config=/config/koord-scheduler.config",
    "--enable-network-topology-manager=true",
)


def test_the_arguments_of_the_chart_are_understood() -> None:
    options = parse_options(CHART)
    assert (options.address.port, options.verbosity, options.config) == (10251, 4, "/config/koord-scheduler.config")
    assert options.network_topology


def test_what_has_no_effect_is_said() -> None:
    said = parse_options(CHART).without_effect
    assert [text.split()[0] for text in said] == ["feature"]


def test_a_flag_that_switches_off_what_is_not_there_is_not_worth_a_word() -> None:
    assert parse_options(["--permit-port-sharing=false", "--contention-profiling=false"]).without_effect == ()


def test_the_secure_port_of_a_component_is_understood() -> None:
    """The arguments of a kube-scheduler that kubeadm writes."""
    options = parse_options(
        [
            "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--bind-address=127.0.0.1",
            "--kubeconfig=/etc/kubernetes/scheduler.conf",
            "--leader-elect=true",
            "--secure-port=10259",
        ]
    )
    assert options.without_effect == ()
    assert str(options.secure.listen_address()) == "127.0.0.1:10259"
    assert options.secure.authentication_kubeconfig == "/etc/kubernetes/scheduler.conf"


def test_flags_that_were_not_given_leave_the_decision_to_the_configuration() -> None:
    options = parse_options([])
    assert (options.leader_election, options.client_connection) == ({}, {})


def test_given_flags_are_known_to_be_given() -> None:
    options = parse_options(["--leader-elect=false", "--leader_elect_lease_duration=30s", "--kube-api-burst=7"])
    assert options.leader_election == {"leader_elect": False, "lease_duration": timedelta(seconds=30)}
    assert options.client_connection == {"burst": 7}


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [([], ("*",)), (["--controller-plugins=*,-Reservation"], ("*", "-Reservation"))],
)
def test_controllers_are_selected_by_a_list(arguments: list[str], selection: tuple[str, ...]) -> None:
    options = parse_options(arguments)
    assert (options.controller_plugins, options.without_effect) == (selection, ())


@pytest.mark.parametrize("argument", ["--port=99999", "--kube-api-qps=fast", "--no-such-flag"])
def test_nonsense_ends_with_one_line(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options([argument])
    assert ended.value.code == 2
    assert argument.partition("=")[0] in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Examples:" in text
    assert "--leader-elect" in text
    assert "--permit-port-sharing" not in text


def test_the_open_port_is_on_loopback_unless_an_address_is_given() -> None:
    assert str(parse_options(["--port=10300"]).address) == "127.0.0.1:10300"
    assert str(parse_options(["--port=10300", "--address=0.0.0.0"]).address) == "0.0.0.0:10300"


def test_headers_of_a_proxy_in_front_have_no_effect_and_that_is_said() -> None:
    (said,) = parse_options(["--requestheader-username-headers=x-remote-user"]).without_effect
    assert said.startswith("--requestheader-username-headers ")
