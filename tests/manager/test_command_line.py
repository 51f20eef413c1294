"""The command line of koord-manager."""

from __future__ import annotations

import ast
import shlex
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import koordinator.manager
from koordinator.base.listen_address import ListenAddress
from koordinator.manager.command_line import parse_options
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.options import (
    ColocationProfileOptions,
    Options,
    PodEnhancedValidatorOptions,
    QuotaUpdateOptions,
)
from koordinator.manager.webhook.pod.binding import BindingAdmissionSettings

OPTIONS = (
    Options,
    PodEnhancedValidatorOptions,
    QuotaUpdateOptions,
    BindingAdmissionSettings,
    ColocationProfileOptions,
    WebhookEnvironment,
)
_WRITERS_OF_OPTIONS = {"command_line.py"}
CHART = (
    "--enable-leader-election",
    "--metrics-addr=:8080",
    "--health-probe-addr=:8000",
    "--logtostderr=true",
    "--leader-election-namespace=koordinator-system",
    "--v=4",
    "--feature-gates=",
    "--sync-period=0",
    "--config-namespace=koordinator-system",
)


def test_without_flags_it_is_as_in_the_original_but_on_loopback() -> None:
    options = parse_options([], {})
    expected = Options(features=options.features)
    assert options == expected
    assert (str(options.metrics_address), str(options.health_address)) == ("127.0.0.1:8080", "127.0.0.1:8000")
    assert (options.qps, options.burst) == (30, 50)


def test_the_arguments_of_the_chart_are_understood() -> None:
    options = parse_options(CHART, {})
    assert (options.metrics_address, options.health_address) == (ListenAddress("", 8080), ListenAddress("", 8000))
    assert options.remarks == ("--logtostderr has no effect: log lines go to stderr",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ListenAddress("", 8080)),
        ("0.0.0.0:1", ListenAddress("0.0.0.0", 1)),
        ("[::1]:80", ListenAddress("::1", 80)),
        ("localhost:80", ListenAddress("localhost", 80)),
        ("0", ListenAddress("", 0)),
        ("127.0.0.1:0", ListenAddress("", 0)),
    ],
)
def test_addresses_are_in_go_s_notation(text: str, expected: ListenAddress) -> None:
    assert parse_options([f"--metrics-addr={text}"], {}).metrics_address == expected


@pytest.mark.parametrize("text", ["8080", "localhost", "::1:80", ":http", ":65536"])
def test_an_address_that_is_none_ends_the_program_with_its_name(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options([f"--health-probe-addr={text}"], {})
    assert ended.value.code == 2
    assert "--health-probe-addr" in capsys.readouterr().err


def test_controllers_are_switched_by_name() -> None:
    options = parse_options(["--controllers=*,-noderesource", "--noderesource-plugins=MidResource"], {})
    assert options.runs_controller("nodeslo")
    assert not options.runs_controller("noderesource")
    assert options.runs_node_resource_plugin("MidResource")
    assert not options.runs_node_resource_plugin("BatchResource")


@pytest.mark.parametrize("gate", ["true", "false"])
def test_a_plugin_with_a_gate_of_its_own_needs_that_as_well(gate: str) -> None:
    options = parse_options([f"--feature-gates=FreeResource={gate}"], {})
    assert options.runs_node_resource_plugin("FreeResource") == (gate == "true")


def test_a_name_that_means_nothing_is_said() -> None:
    remarks = parse_options(["--controllers=*,-noderesorce", "--noderesource-plugins=Batch"], {}).remarks
    assert remarks[0] == "--controllers: '-noderesorce' names nothing: did you mean noderesource?"
    assert remarks[1].startswith("--noderesource-plugins: 'Batch' names nothing")


def test_gates_switch_features() -> None:
    features = parse_options(["--feature-gates=NodeMutatingWebhook=true,WebhookFramework=false"], {}).features
    assert features.enabled("NodeMutatingWebhook")
    assert not features.enabled("WebhookFramework")
    assert not features.enabled("NodeValidatingWebhook")


def test_a_gate_that_only_the_scheduler_reads_is_said() -> None:
    remarks = parse_options(["--feature-gates=PriorityTransformer=true"], {}).remarks
    assert remarks == ("feature gate PriorityTransformer has no effect: only the scheduler reads it",)


@pytest.mark.parametrize(("text", "said"), [("0", False), ("", False), ("10h", True), ("often", True)])
def test_a_sync_period_is_never_an_error(text: str, said: bool) -> None:
    assert bool(parse_options([f"--sync-period={text}"], {}).remarks) is said


def test_a_lock_that_kubernetes_has_given_up_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--leader-elect-resource-lock=configmaps"], {})
    assert "allowed are leases" in capsys.readouterr().err


def test_without_an_election_namespace_it_is_that_of_the_pod() -> None:
    options = parse_options(["--leader-election-namespace="], {"POD_NAMESPACE": "mine"})
    assert options.leader_election_namespace == "mine"


def test_the_options_of_each_part_are_read() -> None:
    options = parse_options(
        [
            "--binding-admission-user-name=a,b",
            "--quota-update-retry-jitter=50ms",
            "--colocation-profile-update-pod-qps=2.5",
            "--pod-enhanced-validator-reconcile-interval=1m",
            "--node-strategy-name-need-check=true",
        ],
        {},
    )
    assert options.binding_admission.user_names == ("a", "b")
    assert options.quota_update.retry_jitter == timedelta(milliseconds=50)
    assert options.colocation_profile.update_pod_qps == 2.5
    assert options.pod_enhanced_validator.reconcile_interval == timedelta(minutes=1)
    assert options.node_strategy_name_needed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ListenAddress("127.0.0.1", 8090)),
        (["--pprof-addr=:9"], ListenAddress("", 9)),
        (["--enable-pprof=false", "--pprof-addr=:9"], ListenAddress("", 0)),
    ],
)
def test_profiles_have_an_address_of_their_own(arguments: list[str], expected: ListenAddress) -> None:
    assert parse_options(arguments, {}).profile_address == expected


NOBODY_NAMED = (
    "feature gate BindingAdmissionWebhook refuses no request: --binding-admission-user-name names no user, so "
    "everybody may bind pods"
)
NOWHERE_CHECKED = (
    "feature gate BindingAdmissionWebhook refuses no request: --binding-admission-namespaces names no namespace; write "
    "* for all of them"
)


@pytest.mark.parametrize(
    ("flags", "remarks"),
    [
        ([], (NOBODY_NAMED,)),
        (["--binding-admission-user-name=koord"], (NOWHERE_CHECKED,)),
        (["--binding-admission-user-name=koord", "--binding-admission-namespaces=*"], ()),
    ],
)
def test_binding_admission_that_refuses_nobody_is_said(flags: list[str], remarks: tuple[str, ...]) -> None:
    assert parse_options(["--feature-gates=BindingAdmissionWebhook=true", *flags], {}).remarks == remarks


def _fields(options: type[Any]) -> list[str]:
    return [field.name for field in fields(options)]


def test_every_option_is_read_by_the_program() -> None:
    """A flag that nobody reads does nothing, whatever its help says."""
    folder = Path(koordinator.manager.__file__).parent
    sources = [path for path in folder.rglob("*.py") if path.name not in _WRITERS_OF_OPTIONS]
    read = {
        node.attr
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert [name for options in OPTIONS for name in _fields(options) if name not in read] == []


def test_every_example_of_the_help_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"], {})
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    examples = [shlex.split(line) for line in lines if "koord-manager " in line and " --" in line]
    assert len(examples) == 4
    for example in examples:
        start = example.index("koord-manager")
        variables = dict(each.split("=", 1) for each in example[:start])
        assert parse_options(example[start + 1 :], variables).remarks == ()


def test_what_happens_at_the_start_is_logged_unless_flags_say_otherwise() -> None:
    assert parse_options([], {}).verbosity == 2


def test_the_namespace_restricts_pods_and_quotas_and_leaves_the_slo_configuration() -> None:
    options = parse_options(["--namespace=shop"], {})
    assert (options.namespace, options.config_namespace) == ("shop", Options().config_namespace)


def test_the_recommender_can_run_alone() -> None:
    options = parse_options(["--controllers=recommender"], {})
    assert options.runs_controller("recommender")
    assert not options.runs_controller("nodeslo")
