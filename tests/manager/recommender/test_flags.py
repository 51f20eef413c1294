"""The flags of the recommender: defaults, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.manager.command_line import parse_options
from koordinator.manager.recommender.options import RecommenderOptions


def test_without_flags_the_defaults_are_those_of_the_options() -> None:
    assert parse_options([], {}).recommender == RecommenderOptions()


def test_flags_change_them() -> None:
    flags = (
        "--recommender-interval=30s",
        "--recommender-source=nodemetric",
        "--recommender-target-cpu-percentile=0.95",
        "--recommender-pod-min-memory-mb=100",
        "--recommender-prometheus-address=http://prometheus:9090",
    )
    options = parse_options(flags, {}).recommender
    assert options.interval == timedelta(seconds=30)
    assert options.source == "nodemetric"
    assert options.estimate.cpu.target_percentile == 0.95
    assert options.estimate.memory.pod_minimum == 100 << 20
    assert options.history.prometheus_address == "http://prometheus:9090"


@pytest.mark.parametrize(
    "flag",
    [
        "--recommender-interval=0s",
        "--recommender-source=prometheus",
        "--recommender-upper-memory-percentile=95",
        "--recommender-oom-bump-up-ratio=0.5",
        "--recommender-round-memory-bytes=0",
    ],
)
def test_a_value_that_is_not_allowed_ends_the_program(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options([flag], {})
    assert flag.split("=")[0] in capsys.readouterr().err


def test_the_credentials_of_prometheus_are_files() -> None:
    flags = (
        "--recommender-prometheus-address=https://prometheus:9090",
        "--recommender-prometheus-token-file=/token",
        "--recommender-prometheus-ca-file=/ca.crt",
    )
    history = parse_options(flags, {}).recommender.history
    assert (history.token_file, history.ca_file) == ("/token", "/ca.crt")


@pytest.mark.parametrize("address", ["http://prometheus:9090", "http://10.0.0.1:9090"])
def test_a_token_is_not_sent_in_plain_text(address: str) -> None:
    flags = (f"--recommender-prometheus-address={address}", "--recommender-prometheus-token-file=/token")
    with pytest.raises(ConfigurationError, match=r"--recommender-prometheus-token-file: '/token' .*https://"):
        parse_options(flags, {})


def test_a_token_may_be_sent_to_this_machine() -> None:
    flags = ("--recommender-prometheus-address=http://127.0.0.1:9090", "--recommender-prometheus-token-file=/token")
    assert parse_options(flags, {}).recommender.history.token_file == "/token"


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--recommender-prometheus-address: 'prometheus:9090' is not usable"):
        parse_options(["--recommender-prometheus-address=prometheus:9090"], {})
