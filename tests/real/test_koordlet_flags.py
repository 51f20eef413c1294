"""koordlet takes every flag and gate that the Go original's --help names, with the same defaults."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, replace

import pytest

from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.features import make_features
from koordinator.koordlet.options import Options
from tests.real.programs import RealPrograms

DIFFERENT = {"addr", "runtime-hooks-nri-backoff-cap"}
"""Loopback unless the flag says otherwise; a minute (docs/differences.md)."""
_VALUES = {"int": "1", "uint": "1", "float": "1", "duration": "1s", "string": "x"}
_SPECIAL = {"v": "1", "feature-gates": "PSICollector=true", "kubeconfig": "/a/file"}
_FLAG = re.compile(r"^  -(\S+)(?: (\S+))?\n((?:    \t.*\n)*)", re.MULTILINE)
_DEFAULT = re.compile(r"\(default (.*)\)\n$")
_GATE = re.compile(r"^    \t(\w+)=true\|false \(\w+ - default=(true|false)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Flag:
    """``kind`` is empty for a switch, ``default`` for a flag without one."""

    name: str
    kind: str
    default: str

    @property
    def some_value(self) -> str:
        """One that the original takes."""
        return self.default or _SPECIAL.get(self.name) or (_VALUES.get(self.kind, "") if self.kind else "true")


@pytest.fixture(scope="module")
def help_text(real_programs: RealPrograms) -> str:
    program = real_programs.original / "koordlet"
    if not program.is_file():
        pytest.skip(f"the original's koordlet is absent: put it into {real_programs.original}")
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=False, timeout=30).stderr


@pytest.fixture(scope="module")
def flags(help_text: str) -> list[Flag]:
    found = []
    for match in _FLAG.finditer(help_text):
        default = _DEFAULT.search(match[3])
        found.append(Flag(match[1], match[2] or "", default[1].strip('"') if default else ""))
    assert len(found) > 120
    return found


def options(*arguments: str) -> Options:
    return parse_options(arguments, {"NODE_NAME": "n"})


def test_every_flag_is_taken(flags: list[Flag], capsys: pytest.CaptureFixture[str]) -> None:
    refused = {}
    for flag in flags:
        try:
            options(f"-{flag.name}={flag.some_value}")
        except SystemExit:
            refused[flag.name] = capsys.readouterr().err
    assert refused == {}


def test_a_flag_with_the_originals_default_changes_nothing(flags: list[Flag]) -> None:
    gates = make_features()

    def settings(*arguments: str) -> Options:
        return replace(options(*arguments), features=gates, remarks=())

    usual = settings()
    changed = {flag.name for flag in flags if flag.default and settings(f"-{flag.name}={flag.default}") != usual}
    assert changed == DIFFERENT


def test_every_gate_has_the_originals_default(help_text: str) -> None:
    gates = make_features()
    wanted = {name: default == "true" for name, default in _GATE.findall(help_text) if not name.startswith("All")}
    assert len(wanted) > 35
    assert {name: gates.enabled(name) for name in wanted} == wanted
