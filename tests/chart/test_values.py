"""The values of the chart: which there are, what a missing one means, and what is refused.

What Helm says is recorded (see tests/chart/renderings.py); tests/real/test_chart.py asks Helm again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from koordinator.api.manifests.chart import known_values as made
from koordinator.api.manifests.chart import values_schema
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.struct_fields import struct_fields
from koordinator.descheduler.features import make_features as descheduler_features
from koordinator.koordlet.features import make_features as koordlet_features
from koordinator.manager.features import make_features as manager_features
from koordinator.model.slo_configuration.configuration_keys import ALL_KEYS
from koordinator.scheduler.features import make_features as scheduler_features
from tests.chart.original import VERSIONS, original_values
from tests.chart.renderings import (
    CHART,
    DEFAULTS,
    REFUSED,
    Document,
    incomplete_values,
    known_values,
    recorded_refusals,
    value_paths,
)
from tests.scheduler.original_gates import IN_HELP

_ACCESSOR = "_values.tpl"


def test_templates_read_the_values_by_one_accessor() -> None:
    """One that reads them itself takes a missing switch for one that is off, and Helm deletes what it leaves out."""
    found = {
        str(path.relative_to(CHART)): path.read_text().count(".Values")
        for path in (CHART / "templates").rglob("*")
        if path.is_file() and ".Values" in path.read_text()
    }
    assert found == {f"templates/{_ACCESSOR}": 1}


def test_every_template_that_has_a_value_begins_with_the_accessor() -> None:
    for path in (CHART / "templates").rglob("*"):
        if path.is_file() and path.suffix != ".tpl" and "$values" in path.read_text():
            first = path.read_text().splitlines()[0]
            assert first == '{{- $values := include "koordinator.values" . | fromJson }}', path


def named(path: Iterable[str]) -> bool:
    names = known_values()["names"]
    for each in path:
        if not isinstance(names, dict) or each not in names:
            return False
        names = names[each]
    return True


def test_every_value_has_a_name_that_is_known() -> None:
    assert [path for path in value_paths(DEFAULTS) if not named(path)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_value_of_the_original_has_a_name_that_is_known(version: str) -> None:
    """Helm keeps them for an upgrade, those too that have no meaning here."""
    assert [path for path in value_paths(original_values(version)) if not named(path)] == []


def test_every_value_that_has_a_meaning_has_a_default() -> None:
    names = known_values()["names"]
    of_the_original = {path for version in VERSIONS for path in value_paths(original_values(version))}
    of_other_charts = {("enabled",), ("global",), ("nameOverride",), ("fullnameOverride",)}
    ignored = {*of_other_charts, ("serviceAccount", "create"), ("serviceAccount", "name")}
    assert {*_paths(names)} - {*value_paths(DEFAULTS)} - of_the_original - ignored == set()


def _paths(names: Document, *above: str) -> Iterable[tuple[str, ...]]:
    for name, below in names.items():
        yield (*above, name)
        if below:
            yield from _paths(below, *above, name)


def test_what_other_values_stand_in_is_one_value_where_its_schema_closes_it() -> None:
    closed = {"properties": {"limits": {"type": "object"}}, "additionalProperties": False}
    schema = {"properties": {"resources": closed, "image": {"$ref": "#/$defs/image"}}}
    definitions: Document = {"$defs": {"image": {"properties": {"tag": {}}}}}
    assert yaml.safe_load(made({}, schema | definitions))["names"] == {"resources": None, "image": {"tag": None}}


def test_each_value_is_missing_in_some_rendering_that_was_compared() -> None:
    values = incomplete_values()
    assert values[0] == {}
    assert {path for path in value_paths(DEFAULTS) if path not in set(value_paths(values[1]))}
    assert all(value is None for value in values[-1].values())


def test_the_schema_has_the_keys_of_the_slo_configuration() -> None:
    schemas = values_schema(json.loads((CHART / "values.schema.json").read_text()))["properties"]["slo"]["properties"]
    for key in ALL_KEYS:
        strategy: Any = key.strategy
        below = {"nodeConfigs"} if key.inline else {"clusterStrategy", "nodeStrategies"}
        fields = {field.wire_name for field in struct_fields(strategy)} if key.inline else set[str]()
        assert schemas.pop(key.name)["properties"].keys() - {EXTENSIONS_MEMBER} == below | fields
    assert schemas == {}


def test_feature_gates_are_those_of_the_programs() -> None:
    gates = {name: set(names) for name, names in yaml.safe_load((CHART / "feature-gates.yaml").read_text()).items()}
    for_all = {"AllAlpha", "AllBeta"}
    assert gates["featureGates"] == {*manager_features(), *for_all}
    assert gates["koordlet.features"] == {*koordlet_features(), *for_all}
    assert gates["scheduler.featureGates"] == {*IN_HELP, *for_all} < {*scheduler_features(), *for_all}
    assert gates["descheduler.featureGates"] == {*descheduler_features(), *for_all}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_value(case: str) -> None:
    assert f"- {REFUSED[case][1]}" in recorded_refusals()[case]


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("a misspelt name", "scheduler.replcas: unknown value; did you mean scheduler.replicas?"),
        ("a misspelt program", "kordlet: unknown value; did you mean koordlet?"),
        ("a name of another program", "koordlet.featureGates: unknown value; did you mean koordlet.features?"),
        ("several names", "manager.replica: unknown value; did you mean manager.replicas?"),
        ("a text for a boolean", "manager.enabled: Invalid type. Expected: [boolean,null], given: string"),
        ("a gate that is neither on nor off", "featureGates: Recommender=on is no feature gate; write NAME=true"),
        ("an unknown gate", "unknown feature gate PodMutatingWebhok; did you mean PodMutatingWebhook?"),
        ("an unknown gate of koordlet", "unknown feature gate BEMemEvict; did you mean BEMemoryEvict?"),
        ("an image of the original", "koordinator-sh/koordlet is an image of the Go original"),
        ("a mirror of the original", "mirror.example/koordinator-sh/koord-manager is an image of the Go original"),
    ],
)
def test_a_refusal_says_what_may_have_been_meant(case: str, line: str) -> None:
    assert line in recorded_refusals()[case]
