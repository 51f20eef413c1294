"""Command lines with Go's habits."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.feature_gates import Feature, FeatureGates, Stage
from koordinator.base.flag_types import FlagError
from koordinator.base.flags import FlagSet, FlagValues


class Program:
    """The flags of an imagined program."""

    def __init__(self) -> None:
        self.gates = FeatureGates({"Resize": Feature(False, Stage.ALPHA)})
        self.flags = FlagSet("koord-test", "Tests flags.", "1.2.3")
        election = self.flags.group("Leader election")
        self.elect = election.boolean("leader-elect", True, "Contend for leadership.")
        self.lease = election.duration(
            "leader-elect-lease-duration", timedelta(seconds=15), "How long others wait.", minimum=timedelta(seconds=1)
        )
        misc = self.flags.group("Misc")
        self.config = misc.string("config", "", "The configuration file.", placeholder="file")
        self.format = misc.string("logging-format", "text", "How logs look.", allowed=("text", "json"))
        self.port = misc.integer("secure-port", 10259, "The port.", minimum=0, maximum=65535)
        self.qps = misc.number("kube-api-qps", 50.0, "Requests a second.", minimum=0)
        self.level = misc.integer("v", 0, "Log level.", short="", minimum=0)
        self.kinds = misc.strings("kinds", ("pods",), "Kinds.")
        self.labels = misc.mapping("labels", "Labels.")
        self.features = misc.feature_gates(self.gates)

    def parse(self, *arguments: str) -> FlagValues:
        return self.flags.parse(arguments)


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.mark.parametrize("argument", ["--config=a=b.yaml", "-config=a=b.yaml"])
def test_value_after_equals(program: Program, argument: str) -> None:
    assert program.parse(argument)[program.config] == "a=b.yaml"


def test_value_as_the_next_argument(program: Program) -> None:
    assert program.parse("--config", "a.yaml")[program.config] == "a.yaml"


def test_empty_value(program: Program) -> None:
    values = program.parse("--config=")
    assert (values[program.config], values.is_set(program.config)) == ("", True)


def test_default_when_not_named(program: Program) -> None:
    values = program.parse()
    assert (values[program.port], values.is_set(program.port)) == (10259, False)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [("--leader-elect", True), ("-leader-elect", True), ("--leader-elect=false", False), ("--leader_elect=F", False)],
)
def test_switches(program: Program, argument: str, expected: bool) -> None:
    assert program.parse(argument)[program.elect] is expected


def test_switch_does_not_take_the_next_argument(program: Program) -> None:
    values = program.parse("--leader-elect", "false")
    assert (values[program.elect], values.arguments) == (True, ["false"])


def test_last_one_wins(program: Program) -> None:
    assert program.parse("--secure-port=1", "--secure-port=2")[program.port] == 2


@pytest.mark.parametrize("arguments", [["-v=4"], ["--v=4"], ["-v", "4"], ["-v4"]])
def test_log_level(program: Program, arguments: list[str]) -> None:
    assert program.parse(*arguments)[program.level] == 4


def test_duration(program: Program) -> None:
    assert program.parse("--leader-elect-lease-duration=1m30s")[program.lease] == timedelta(seconds=90)


def test_list_and_map(program: Program) -> None:
    values = program.parse("--kinds=a, b,", "--labels=a=b,c=d=e")
    assert (values[program.kinds], values[program.labels]) == (("a", "b"), {"a": "b", "c": "d=e"})


def test_feature_gates_are_set(program: Program) -> None:
    program.parse("--feature-gates=Resize=true")
    assert program.gates.enabled("Resize")


def test_after_two_dashes_nothing_is_a_flag(program: Program) -> None:
    assert program.parse("--", "--config=a").arguments == ["--config=a"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--secure-port=http", "--secure-port: 'http' is not usable: a whole number, at least 0, at most 65535"),
        ("--secure-port=70000", "--secure-port: '70000' is not usable"),
        ("--leader-elect=maybe", "--leader-elect: 'maybe' is not usable: write true or false"),
        ("--leader-elect-lease-duration=15", "write a duration such as 300ms"),
        ("--leader-elect-lease-duration=1ms", "at least 1s"),
        ("--logging-format=xml", "allowed are text, json"),
        ("--kube-api-qps=nan", "a number, at least 0"),
        ("--labels=a", "write KEY=VALUE pairs"),
        ("--feature-gates=No=true", "--feature-gates: 'No' is not usable: known are AllAlpha, AllBeta, Resize"),
        ("--feature-gates=Resize=x", "--feature-gates Resize: 'x' is not usable: write true or false"),
        ("--leader-elekt", "did you mean --leader-elect?"),
        ("--config", "a value is needed: --config=file"),
    ],
)
def test_errors_name_the_flag_the_value_and_what_is_allowed(program: Program, argument: str, message: str) -> None:
    with pytest.raises(FlagError) as raised:
        program.parse(argument)
    assert message in str(raised.value)


def test_name_of_a_flag_is_taken_once(program: Program) -> None:
    with pytest.raises(ValueError, match="--config"):
        program.flags.group("Again").string("config", "", "")


def test_help_shows_groups_defaults_and_choices(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.flags.parse_or_exit(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Leader election flags:\n      --leader-elect[=true|false]\n" in text
    assert "How long others wait. (default 15s)" in text
    assert "--logging-format text|json" in text
    assert "Resize=true|false (ALPHA - default=false)" in text


def test_version(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.flags.parse_or_exit(["--version"])
    assert re.fullmatch(
        r"koord-test 1\.2\.3 \((commit [0-9a-f]{12}, )?Python 3\.[\d.a-z+]+\)\n", capsys.readouterr().out
    )


def test_wrong_command_line_ends_with_status_two(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.flags.parse_or_exit(["--secure-port=x"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("Error: --secure-port: 'x' is not usable")


def test_stray_argument_is_refused(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.flags.parse_or_exit(["start"])
    assert "takes flags only" in capsys.readouterr().err


@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_command_line_is_read_or_refused(arguments: list[str]) -> None:
    try:
        Program().flags.parse(arguments)
    except FlagError:
        return
