"""clientConnection and leaderElection, from flags and files to clients and elections."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.component_configuration import ClientConnection, LeaderElection
from koordinator.base.errors import ConfigurationError
from koordinator.base.flags import FlagSet
from koordinator.base.metrics import Metrics
from koordinator.kube.component_options import ClientFlags, LeaderElectionFlags, client_options, election_config

_ELECTION = LeaderElection(resource_name="koord-test", resource_namespace="system")


def election(*arguments: str) -> dict[str, Any]:
    flags = FlagSet("koord-test", "", "1")
    declared = LeaderElectionFlags(flags.group("Leader election"), _ELECTION, "Work")
    return declared.overrides(flags.parse(arguments))


def test_what_is_not_given_overrides_nothing() -> None:
    assert election() == {}


@pytest.mark.parametrize(
    ("argument", "field", "value"),
    [
        ("--leader-elect-lease-duration=60s", "lease_duration", 60),
        ("--leader-elect-renew-deadline=9s", "renew_deadline", 9),
        ("--leader-elect-retry-period=1s", "retry_period", 1),
        ("--leader-elect-resource-name=other", "name", "other"),
        ("--leader-elect-resource-namespace=other", "namespace", "other"),
    ],
)
def test_a_flag_wins_over_the_file(argument: str, field: str, value: object) -> None:
    config = election_config(replace(_ELECTION, **election(argument)), "host")
    assert getattr(config, field) == value


def test_who_does_not_elect_has_no_election() -> None:
    assert election_config(replace(_ELECTION, **election("--leader-elect=false")), "host") is None


def test_two_processes_of_one_host_are_two_candidates() -> None:
    one, two = election_config(_ELECTION, "host"), election_config(_ELECTION, "host")
    assert one is not None
    assert two is not None
    assert one.identity != two.identity


def test_an_election_that_cannot_be_held_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"leaderElection\.leaseDuration"):
        election_config(replace(_ELECTION, **election("--leader-elect-lease-duration=5s")), "host")


def test_limits_of_requests_are_overridden() -> None:
    flags = FlagSet("koord-test", "", "1")
    declared = ClientFlags(flags.group("Cluster"), ClientConnection())
    given = flags.parse(["--kube-api-qps=7"])
    connection = replace(ClientConnection(qps=1, burst=2), **declared.overrides(given))
    options = client_options(connection, "koord-test", Metrics())
    assert (options.qps, options.burst) == (7, 2)


@pytest.mark.parametrize(("configured", "used"), [("", "/flag"), ("/file", "/file")])
def test_the_kubeconfig_of_the_file_wins(configured: str, used: str) -> None:
    options = client_options(ClientConnection(kubeconfig=configured), "koord-test", Metrics(), kubeconfig="/flag")
    assert options.kubeconfig == used
