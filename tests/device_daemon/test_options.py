"""Where options come from, and which wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.device_daemon.options import DEFAULT_OUTPUT, ConfigurationFileError, Options, parse_options

CHAIN = "unable to load config: unable to finalize config: unable to parse config file: "


def written(folder: Path, text: str) -> str:
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_without_anything_the_defaults_hold() -> None:
    assert parse_options([], {}) == Options()


def test_only_an_address_that_nobody_has_chosen_may_be_taken() -> None:
    assert parse_options([], {}).metrics_dispensable
    assert not parse_options(["--metrics-addr=127.0.0.1:9317"], {}).metrics_dispensable


def test_on_the_host_itself_sysfs_is_where_it_always_is() -> None:
    assert parse_options([], {"agent_mode": "hostMode"}).pci_folder == "/sys/bus/pci/devices"


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "flags: {kdd: {oneshot: false, sleepInterval: 60s}}")
    options = parse_options(["-oneshot", f"-config-file={path}"], {"KDD_SLEEP_INTERVAL": "30s"})
    assert (options.oneshot, options.sleep_interval, options.output) == (True, 30.0, DEFAULT_OUTPUT)


def test_a_flag_wins_even_where_it_says_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, '{"version": "v1", "flags": {"kdd": {"oneshot": true, "sleepInterval": "1m"}}}')
    options = parse_options(["--oneshot=false", "--sleep-interval=15m", "--config-file", path], {})
    assert (options.oneshot, options.sleep_interval) == (False, 900.0)


def test_the_first_variable_that_is_set_counts() -> None:
    both = {"KDD_PRINTS_OUTPUT_FILE": "/a", "PRINTS_OUTPUT_FILE": "/b"}
    assert parse_options([], both).output == "/a"
    assert parse_options([], {"PRINTS_OUTPUT_FILE": "/b"}).output == "/b"


def test_an_empty_output_is_set_by_an_empty_variable() -> None:
    assert parse_options([], {"KDD_PRINTS_OUTPUT_FILE": ""}).output == ""


@pytest.mark.parametrize(("text", "oneshot"), [("true", True), ("1", True), ("0", False), ("", False)])
def test_switches_in_the_environment(text: str, oneshot: bool) -> None:
    assert parse_options([], {"KDD_ONESHOT": text}).oneshot is oneshot


@pytest.mark.parametrize(("variable", "text"), [("KDD_SLEEP_INTERVAL", "abc"), ("KDD_ONESHOT", "maybe")])
def test_a_bad_variable_is_named_with_its_flag(variable: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{variable} \(for --.*\): '{text}' is not usable"):
        parse_options([], {variable: text})


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    path = written(tmp_path, "unknown: 1\nflags: {kdd: {printsOutputFile: /c, other: 2}}")
    assert parse_options([], {"CONFIG_FILE": path}).output == "/c"


@pytest.mark.parametrize("text", ["", "version: v1\n", "version: ''\n", "flags:\n", "flags: {kdd: null}\n"])
def test_a_file_that_says_nothing_changes_nothing(text: str, tmp_path: Path) -> None:
    assert parse_options(["--config-file", written(tmp_path, text)], {}) == Options()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version: v2", "error parsing config file: unknown version: v2"),
        ("[", "error parsing config file: unmarshal error: "),
        ("- a", "error parsing config file: unmarshal error: "),
        ("flags: {kdd: {oneshot: sometimes}}", "error parsing config file: unmarshal error: .*oneshot"),
        ("flags: {kdd: {sleepInterval: soon}}", "error parsing config file: unmarshal error: 'soon'"),
        ("flags: {kdd: {sleepInterval: 0s}}", "error parsing config file: unmarshal error: .*sleepInterval.*at least"),
        ("flags: {kdd: {sleepInterval: -3}}", "error parsing config file: unmarshal error: .*sleepInterval.*at least"),
    ],
)
def test_a_file_that_cannot_be_used(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=CHAIN + why):
        parse_options(["--config-file", written(tmp_path, text)], {})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigurationFileError) as refused:
        parse_options(["--config-file=/no/such"], {})
    assert str(refused.value) == f"{CHAIN}error opening config file: open /no/such: no such file or directory"


def test_an_interval_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--sleep-interval=0s"], {})
    assert "--sleep-interval: '0s' is not usable: at least 1ms" in capsys.readouterr().err


def test_what_has_no_effect_is_said() -> None:
    (remark,) = parse_options(["--no-timestamp"], {}).remarks
    assert remark == "--no-timestamp has no effect: no timestamp is ever written"


def test_the_configuration_is_shown_as_a_file_that_can_be_used(tmp_path: Path) -> None:
    options = Options(oneshot=True, sleep_interval=90, output="/c")
    assert parse_options(["--config-file", written(tmp_path, options.document())], {}) == options
