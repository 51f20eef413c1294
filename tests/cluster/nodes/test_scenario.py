"""Scenarios: what they expand to, and what is said about mistakes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.errors import ConfigurationError
from koordinator.cluster.nodes.node_objects import expand
from koordinator.cluster.nodes.scenario import default_scenario, load_scenario, parse_scenario, scale

_GROUP = "nodeGroups: [{name: a}]\n"


def test_default_scenario_mixes_sizes_over_three_zones() -> None:
    nodes = expand(default_scenario())
    assert Counter(str(node.group.cpu) for node in nodes) == {"8": 5, "16": 3, "32": 2}
    assert Counter(node.zone for node in nodes) == {"zone-a": 4, "zone-b": 3, "zone-c": 3}


@given(nodes=st.integers(1, 2000))
def test_scaling_gives_exactly_so_many_nodes_in_the_same_proportion(nodes: int) -> None:
    counts = [group.count for group in scale(default_scenario(), nodes).node_groups]
    assert sum(counts) == nodes
    assert all(abs(count - nodes * share) < 1 for count, share in zip(counts, (0.5, 0.3, 0.2), strict=True))


def test_a_node_keeps_its_name_and_zone_when_the_fleet_grows() -> None:
    few = {node.name: node.zone for node in expand(scale(default_scenario(), 10))}
    many = {node.name: node.zone for node in expand(scale(default_scenario(), 100))}
    assert few.items() <= many.items()


def test_addresses_are_distinct() -> None:
    nodes = expand(scale(default_scenario(), 1000))
    assert len({node.address for node in nodes}) == 1000


@pytest.mark.parametrize(
    ("text", "field", "value", "allowed"),
    [
        ("zoness: [a]", "zoness", "['a']", "allowed are faults, name, nodeGroups, region, seed, timing, usage, zones"),
        ("nodeGroups: [{name: a, memry: 4Gi}]", "nodeGroups[0].memry", "'4Gi'", "there is no such field"),
        ("nodeGroups: [{name: a, reserved: {cpus: 1}}]", "nodeGroups[0].reserved.cpus", "1", "allowed are cpu, memory"),
        ("nodeGroups: [{name: a, taints: [{keys: b}]}]", "nodeGroups[0].taints[0].keys", "'b'", "effect, key, value"),
        ("nodeGroups: [{name: a, pods: many}]", "nodeGroups[0].pods", "'many'", "expected `int`"),
        ("nodeGroups: [{name: a, pods: 500}]", "nodeGroups[0].pods", "500", "from 1 to 250"),
        ("nodeGroups: [{name: a, cpu: 4z}]", "nodeGroups[0].cpu", "'4z'", "not a quantity"),
        ("nodeGroups: [{name: a, cpu: 0}]", "nodeGroups[0].cpu", "'0'", "more than 0"),
        (
            "nodeGroups: [{name: a, reserved: {cpu: 8}}]",
            "nodeGroups[0].reserved.cpu",
            "'8'",
            "less than the node's cpu",
        ),
        ("nodeGroups: [{name: a, count: -1}]", "nodeGroups[0].count", "-1", "0 or more"),
        ("nodeGroups: [{name: a, count: 0}]", "nodeGroups", "0", "from 1 to 20000 nodes"),
        ("nodeGroups: [{name: A b}]", "nodeGroups[0].name", "'A b'", "lower-case letters"),
        ("nodeGroups: [{name: a}, {name: a}]", "nodeGroups[1].name", "'a'", "a name of its own"),
        ("nodeGroups: [{name: a, namePattern: node}]", "nodeGroups[0].namePattern", "'node'", "{index}"),
        ("nodeGroups: [{name: a, namePattern: 'n{no}'}]", "nodeGroups[0].namePattern", "'n{no}'", "{index}"),
        (
            "nodeGroups: [{name: a, namePattern: 'n{index}'}, {name: b, namePattern: 'n{index}'}]",
            "nodeGroups[1].namePattern",
            "'n{index}'",
            "another group has a node 'n0' too",
        ),
        ("nodeGroups: [{name: a, resources: {gpu: 1}}]", "nodeGroups[0].resources", "'gpu'", "example.com/gpu"),
        (
            "nodeGroups: [{name: a, resources: {example.com/gpu: 500m}}]",
            "nodeGroups[0].resources.example.com/gpu",
            "'500m'",
            "a whole number",
        ),
        ("nodeGroups: [{name: a, labels: {b: c d}}]", "nodeGroups[0].labels.b", "'c d'", "alphanumeric"),
        (
            "nodeGroups: [{name: a, taints: [{key: b, effect: Never}]}]",
            "nodeGroups[0].taints[0].effect",
            "'Never'",
            "one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        ("nodeGroups: []", "nodeGroups", "[]", "at least one group"),
        (_GROUP + "zones: []", "zones", "[]", "at least one zone"),
        (_GROUP + "timing: {leaseDuration: 40x}", "timing.leaseDuration", "'40x'", "not a duration"),
        (_GROUP + "timing: {leaseDuration: 10s}", "timing.leaseInterval", "'20s'", "less than leaseDuration"),
        (_GROUP + "timing: {sampleInterval: 10ms}", "timing.sampleInterval", "'10ms'", "at least 1s"),
        (_GROUP + "timing: {speed: 0}", "timing.speed", "0.0", "more than 0"),
        (_GROUP + "timing: {startHour: 24}", "timing.startHour", "24.0", "less than 24"),
        (
            _GROUP + "usage: {batch: {cpuPercent: [9, 1]}}",
            "usage.batch.cpuPercent",
            "[9.0, 1.0]",
            "smaller one first",
        ),
        (_GROUP + "usage: {batch: {cpuPercent: [9]}}", "usage.batch.cpuPercent", "[9]", "length 2"),
        (_GROUP + "usage: {batch: {nodeLimitPercent: 200}}", "usage.batch.nodeLimitPercent", "200.0", "from 0 to 100"),
        ("just text", "scenario.yaml", "'just text'", "a YAML mapping"),
        ("[", "scenario.yaml", "'the document'", "YAML"),
    ],
)
def test_a_mistake_names_field_value_and_what_is_allowed(text: str, field: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_scenario(text, "scenario.yaml")
    message = str(raised.value)
    assert message.startswith(f"{field}: {value} is not usable: ")
    assert allowed in message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--scenario: .*missing\.yaml"):
        load_scenario(tmp_path / "missing.yaml")


def test_every_field_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
        name: mine
        zones: [z1]
        nodeGroups:
          - {name: gpu, count: 2, namePattern: "gpu-{index:03d}", cpu: 64, memory: 256Gi, pods: 200,
             resources: {nvidia.com/gpu: 8}, reserved: {cpu: 1, memory: 2Gi}, labels: {pool: gpu},
             taints: [{key: gpu, value: "yes", effect: NoExecute}], images: [{name: "big:1", size: 4Gi}]}
        usage: {latencySensitive: {meanPercent: [5, 6], spikeDuration: [10s, 20s]}}
        timing: {speed: 60, startHour: 6.5, podStart: [0s, 1s]}
        """
    )
    scenario = load_scenario(path)
    assert [node.name for node in expand(scenario)] == ["gpu-000", "gpu-001"]
    assert scenario.usage.latency_sensitive.mean_percent == (5.0, 6.0)
    assert scenario.timing.pod_start[1].total_seconds() == 1
