from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scheduler_perf.kind_table import kind_of
from benchmarks.scheduler_perf.templates import Template, Templates
from koordinator.api.kinds import PODS
from koordinator.base.errors import ConfigurationError


def value(action: str, index: int = 0, count: int = 1) -> object:
    return Template(f"value: {action}", "inline").document(index, count)["value"]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("{{.Index}}", 17),
        ("{{ .Index }}", 17),
        ("{{- .Count -}}", 100),
        ("{{ div .Index 10 }}", 1),
        ("{{ mod .Index 12 }}", 5),
        ("{{ div 30000 .Count }}Mi", "300Mi"),
        ("name-{{.Index}}-{{.Count}}", "name-17-100"),
    ],
)
def test_actions(action: str, expected: object) -> None:
    assert value(action, index=17, count=100) == expected


@pytest.mark.parametrize("action", ["{{ .Name }}", "{{ range .Index }}", "{{ add 1 2 }}", "{{}}", "{{ div 1 0 }}"])
def test_other_actions_are_named(action: str) -> None:
    with pytest.raises(ConfigurationError, match="inline"):
        value(action)


def test_keys_may_hold_actions() -> None:
    document = Template("capacity: {'foo.com/bar-{{.Index}}': 1}", "inline").document(3, 5)
    assert document == {"capacity": {"foo.com/bar-3": 1}}


def test_a_template_without_actions_is_parsed_once() -> None:
    template = Template("kind: Pod", "inline")
    assert template.document(0, 2) is template.document(1, 2)


@pytest.mark.parametrize("text", ["- a list", "", "a: 1\n---\nb: 2", "a: 1\na: 2", "a: [1"])
def test_a_template_is_one_object(text: str) -> None:
    with pytest.raises(ConfigurationError, match="inline"):
        Template(text, "inline")


def test_fields_of_spread_constraints_may_begin_with_a_capital() -> None:
    document = Template(
        "spec: {topologySpreadConstraints: [{NodeTaintsPolicy: Honor, maxSkew: 1}]}", "inline"
    ).document()
    assert document["spec"]["topologySpreadConstraints"] == [{"nodeTaintsPolicy": "Honor", "maxSkew": 1}]


def test_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "misc").mkdir()
    (tmp_path / "templates/pod.yaml").write_text("kind: Pod")
    assert Templates(tmp_path / "misc").at("../templates/pod.yaml").document() == {"kind": "Pod"}


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml"):
        Templates(tmp_path).at("absent.yaml")


def test_templates_say_their_kind() -> None:
    assert kind_of({"apiVersion": "v1", "kind": "Pod"}) is PODS


def test_a_kind_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConfigurationError, match="example/v1 Thing"):
        kind_of({"apiVersion": "example/v1", "kind": "Thing"})
