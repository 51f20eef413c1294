"""The command line of koordlet. That it takes every flag of the original is in tests/real/test_koordlet_flags.py."""

from __future__ import annotations

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.koordlet import features
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.options import Options

# As the chart of the original starts it, with what else manifests were seen to say.
CHART = (
    *("-addr=:9316", "-cgroup-root-dir=/host-cgroup/", "--logtostderr=true", "--v=4", "-housekeeping_interval=10s"),
    "-feature-gates=BECPUEvict=true,BEMemoryEvict=true,CgroupReconcile=true,Accelerators=true,Libpfm4=true",
)


def parsed(*arguments: str, **environment: str) -> Options:
    return parse_options(arguments, {"NODE_NAME": "n", **environment})


def test_the_arguments_of_the_chart_are_understood() -> None:
    options = parsed(*CHART)
    assert (options.listen.port, options.verbosity, options.host.cgroup) == (9316, 4, "/host-cgroup")
    assert all(options.features.enabled(name) for name in (features.BE_CPU_EVICT, features.ACCELERATORS))


def test_what_has_no_effect_is_named_with_the_reason() -> None:
    assert parsed(*CHART).remarks == (
        "--logtostderr has no effect: log lines go to stderr",
        "--housekeeping-interval has no effect: there is no cAdvisor in koordlet",
        "--feature-gates=Libpfm4=true has no effect: the feature is not built yet",
    )


def test_what_is_switched_off_and_would_have_no_effect_is_not_worth_a_word() -> None:
    assert parsed("--docker_only=false", "--feature-gates=Libpfm4=false").remarks == ()


@pytest.mark.parametrize(
    ("mode", "root"), [("hostMode", "/sys/fs/cgroup"), ("dsMode", "/host-cgroup"), ("", "/host-cgroup")]
)
def test_where_files_are_depends_on_the_mode(mode: str, root: str) -> None:
    assert parsed(agent_mode=mode).host.cgroup == root


def test_without_the_name_of_its_node_it_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="NODE_NAME"):
        parse_options([], {})


@pytest.mark.parametrize(
    "argument",
    [
        "--kubelet-sync-timeout=soon",
        "--no-such-flag=1",
        "--feature-gates=NoSuchGate=true",
        "--addr=nowhere",
        "--psi-collector-interval=10ms",
        "--runtime-hooks-network=tcp",
    ],
)
def test_nonsense_ends_with_one_line_that_names_the_flag(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(argument)
    assert ended.value.code == 2
    assert argument.partition("=")[0] in capsys.readouterr().err


def test_what_only_observes_takes_nothing_back() -> None:
    with pytest.raises(ConfigurationError, match="--cleanup"):
        parse_options(["--cleanup", "--observe-only"], {"NODE_NAME": "n"})


def test_hooks_are_served_where_the_mode_has_their_folder_and_tried_again_within_a_minute() -> None:
    hooks = parsed(agent_mode="hostMode").hooks
    assert (hooks.socket, hooks.nri.longest_pause) == ("/var/run/koordlet/koordlet.sock", 60.0)
