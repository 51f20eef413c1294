"""From a DeschedulerConfiguration to profiles that can run, and what is said about mistakes."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.base.errors import ConfigurationError
from koordinator.base.listen_address import ListenAddress
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.document import KIND, VERSION
from koordinator.descheduler.configuration.loading import (
    Configuration,
    load_configuration,
    resolve,
    write_configuration,
)
from koordinator.descheduler.default_evictor import DefaultEvictor
from koordinator.descheduler.framework import DeschedulePlugin, EvictPlugin, FilterPlugin, Plan, Plugin, Snapshot
from koordinator.descheduler.plugins.low_node_load.arguments import LowNodeLoadArgs
from koordinator.descheduler.plugins.table import DECIDING

HEAD = {"apiVersion": VERSION, "kind": KIND}
DIRECT = {
    "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
    "filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
}


class Migration(EvictPlugin, FilterPlugin):
    """Stands for the plugin that profiles have by default."""

    name = "MigrationController"
    has_controllers = True


class OldBatchPods(DeschedulePlugin):
    """A plugin of another package."""

    name = "OldBatchPods"

    def deschedule(self, snapshot: Snapshot) -> Plan:
        yield from ()


class Anonymous(Plugin):
    """Takes part nowhere."""

    name = "Anonymous"


BUILT_IN: dict[str, type[Plugin]] = {**DECIDING, "DefaultEvictor": DefaultEvictor, "MigrationController": Migration}


def entry(name: str, target: str = "") -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{target or name}", "koordinator.descheduler.plugins")


def resolved(profile: dict[str, Any] | None = None, *entries: EntryPoint, **fields: Any) -> Configuration:
    profiles = [profile] if profile is not None else []
    return resolve({**HEAD, **fields, "profiles": profiles}, "", Catalogue(BUILT_IN, lambda: entries))


def test_without_profiles_only_migration_jobs_are_looked_after() -> None:
    (profile,) = resolved().profiles
    assert profile.document.name == "koord-descheduler"
    expected = {"deschedule": (), "balance": (), "evict": ("MigrationController",), "filter": ("MigrationController",)}
    assert profile.points == expected


def test_the_article_s_configuration_means_what_it_says() -> None:
    """That of the introductory article, whose pod and whose ConfigMap of the scheduler tests/e2e/article has."""
    args = {
        "lowThresholds": {"cpu": 20, "memory": 30},
        "highThresholds": {"cpu": 50, "memory": 60},
        "evictableNamespaces": {"exclude": ["kube-system", "koordinator-system"]},
    }
    configuration = resolved(
        {
            "name": "koord-descheduler",
            "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
            "pluginConfig": [{"name": "LowNodeLoad", "args": args}],
        },
        deschedulingInterval="60s",
    )
    (profile,) = configuration.profiles
    assert profile.points["balance"] == ("LowNodeLoad",)
    assert configuration.document.descheduling_interval == timedelta(seconds=60)
    arguments = profile.arguments["LowNodeLoad"]
    assert (arguments.low_thresholds, arguments.high_thresholds) == (args["lowThresholds"], args["highThresholds"])
    assert arguments.evictable_namespaces.exclude == ["kube-system", "koordinator-system"]


@pytest.mark.parametrize(
    ("given", "evict", "filters"),
    [
        ({}, ("MigrationController",), ("MigrationController",)),
        (DIRECT, ("DefaultEvictor",), ("DefaultEvictor",)),
        (
            {"filter": {"enabled": [{"name": "DefaultEvictor"}]}},
            ("MigrationController",),
            ("MigrationController", "DefaultEvictor"),
        ),
        (
            {"filter": {"enabled": [{"name": "DefaultEvictor"}, {"name": "MigrationController"}]}},
            ("MigrationController",),
            ("MigrationController", "DefaultEvictor"),
        ),
        (
            {"filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "MigrationController"}]}},
            ("MigrationController",),
            ("DefaultEvictor",),
        ),
    ],
)
def test_defaults_come_first_unless_they_are_disabled(
    given: dict[str, Any], evict: tuple[str, ...], filters: tuple[str, ...]
) -> None:
    (profile,) = resolved({"plugins": given}).profiles
    assert (profile.points["evict"], profile.points["filter"]) == (evict, filters)


def test_plugins_without_arguments_have_their_defaults() -> None:
    (profile,) = resolved({"plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}}}).profiles
    args = profile.arguments["LowNodeLoad"]
    assert isinstance(args, LowNodeLoadArgs)
    assert args.resource_weights == {"cpu": 1, "memory": 1}
    assert args.anomaly_condition is not None
    assert args.anomaly_condition.consecutive_abnormalities == 5


def test_detectors_outlive_the_time_between_cycles() -> None:
    profile = {"plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}}}
    configuration = resolved(profile, deschedulingInterval="10m")
    assert configuration.profiles[0].arguments["LowNodeLoad"].detector_cache_timeout.total_seconds() == 600
    assert any("detectorCacheTimeout is raised" in warning for warning in configuration.warnings)


def test_unknown_arguments_of_upstream_plugins_are_remarked_on() -> None:
    profile = {
        "plugins": {"deschedule": {"enabled": [{"name": "PodLifeTime"}]}},
        "pluginConfig": [{"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1, "speed": 2}}],
    }
    assert "profiles[0].pluginConfig[0].args.speed has no effect: there is no such field" in resolved(profile).warnings


def test_arguments_of_plugins_that_take_no_part_are_not_completed() -> None:
    profile = {"pluginConfig": [{"name": "CustomPriority", "args": {"evictionOrder": []}}]}
    (warning,) = resolved(profile).warnings
    assert "no extension point enables plugin CustomPriority" in warning


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        ({"apiVersion": "descheduler/v1alpha1"}, "apiVersion", VERSION),
        ({"kind": "Policy"}, "kind", KIND),
        ({"interval": "1s"}, "interval", "no such field"),
        ({"deschedulingInterval": "soon"}, "deschedulingInterval", "duration"),
        ({"deschedulingInterval": "-1s"}, "deschedulingInterval", "0s for one cycle"),
        ({"maxNoOfPodsToEvictTotal": -1}, "maxNoOfPodsToEvictTotal", "at least 0"),
        ({"leaderElection": {"leaseDuration": "5s"}}, "leaderElection.leaseDuration", "more than renewDeadline"),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst", "at least 0"),
        ({"healthzBindAddress": "a:b:c"}, "healthzBindAddress", "HOST:PORT"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "nodeSelector", "operator"),
        ({"profiles": [{}, {}]}, "profiles[0].name", "descheduler name is needed"),
        ({"profiles": [{"name": "a"}, {"name": "a"}]}, "profiles[1].name", "duplicate profile"),
        (
            {"profiles": [{"name": "a"}, {"name": "b"}]},
            "profiles[1].plugins.evict.enabled[MigrationController]",
            'profile "a" has it already',
        ),
        (
            {"profiles": [{"name": "a"}, {"name": "b", "plugins": {"evict": DIRECT["evict"]}}]},
            "profiles[1].plugins.filter.enabled[MigrationController]",
            'profile "a" has it already',
        ),
        (
            {"profiles": [{"plugins": {"evict": {"disabled": [{"name": "*"}]}}}]},
            "profiles[0].plugins.evict.enabled",
            "no evict plugin is enabled",
        ),
        (
            {"profiles": [{"plugins": {"evict": {"enabled": [{"name": "DefaultEvictor"}]}}}]},
            "profiles[0].plugins.evict.enabled",
            "only one evict plugin can be enabled",
        ),
        (
            {"profiles": [{"plugins": {"balance": {"enabled": [{"name": "Nobody"}]}}}]},
            "profiles[0].plugins.balance.enabled[Nobody]",
            'BalancePlugin "Nobody" does not exist',
        ),
        (
            {"profiles": [{"plugins": {"balance": {"enabled": [{"name": "PodLifeTime"}]}}}]},
            "profiles[0].plugins.balance.enabled[PodLifeTime]",
            "does not extend BalancePlugin plugin",
        ),
        (
            {"profiles": [{"plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}, {"name": "LowNodeLoad"}]}}}]},
            "profiles[0].plugins.balance.enabled[LowNodeLoad]",
            "already registered",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "LowNodeLoad"}, {"name": "LowNodeLoad"}]}]},
            "profiles[0].pluginConfig[1].name",
            "repeated config for plugin LowNodeLoad",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "LowNodeLoad", "args": {"kind": "OtherArgs"}}]}]},
            "profiles[0].pluginConfig[0].args.kind",
            "LowNodeLoadArgs",
        ),
    ],
)
def test_a_mistake_names_its_field(document: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve({**HEAD, **document}, "file: ", Catalogue(BUILT_IN, lambda: ()))
    assert caught.value.field == f"file: {field}"
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, ListenAddress("127.0.0.1", 10251)),
        (":9000", ListenAddress("", 9000)),
        ("10.0.0.1", ListenAddress("10.0.0.1", 10251)),
        ("0", ListenAddress("", 0)),
    ],
)
def test_addresses(text: str | None, address: ListenAddress) -> None:
    assert resolved(None, healthzBindAddress=text).healthz == address


@pytest.mark.parametrize("plugin", sorted(DECIDING))
def test_what_is_written_means_the_same(plugin: str, tmp_path: Path) -> None:
    needed = {
        "CustomPriority": {
            "evictionOrder": [{"name": "a", "nodeSelector": {}}, {"name": "b", "nodeSelector": {}}],
        },
        "PodLifeTime": {"maxPodLifeTimeSeconds": 60},
        "HighNodeUtilization": {"thresholds": {"cpu": 20}},
        "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
        "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 3},
        "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    }
    point = "deschedule" if issubclass(DECIDING[plugin], DeschedulePlugin) else "balance"
    profile = {
        "plugins": {**DIRECT, point: {"enabled": [{"name": plugin}]}},
        "pluginConfig": [{"name": plugin, "args": needed.get(plugin, {})}],
    }
    first = resolved(profile, maxNoOfPodsToEvictTotal=3, deschedulingInterval="1m")
    path = tmp_path / "written.yaml"
    path.write_text(write_configuration(first))
    second = load_configuration(path, Catalogue(BUILT_IN, lambda: ()))
    assert (second.profiles[0].points, second.profiles[0].arguments) == (
        first.profiles[0].points,
        first.profiles[0].arguments,
    )
    assert write_configuration(second) == write_configuration(first)


def test_a_config_map_holds_the_file_under_its_key(tmp_path: Path) -> None:
    path = tmp_path / "config-map.yaml"
    inner = yaml.safe_dump({**HEAD, "deschedulingInterval": "30s"})
    path.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": {"koord-descheduler-config": inner}}))
    found = load_configuration(path, Catalogue(BUILT_IN, lambda: ()))
    assert found.document.descheduling_interval.total_seconds() == 30


def test_plugins_of_other_packages() -> None:
    profile = {"plugins": {"deschedule": {"enabled": [{"name": "OldBatchPods"}]}}}
    assert resolved(profile, entry("OldBatchPods")).profiles[0].plugins["OldBatchPods"] is OldBatchPods


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([entry("Anonymous")], "takes part at no extension point"),
        ([entry("Anonymous", "Missing")], "cannot be imported"),
        ([entry("Anonymous", "OldBatchPods")], "is a class with name = 'OldBatchPods'"),
        ([entry("Anonymous", "HEAD")], "expected is a class"),
        ([entry("Anonymous"), entry("Anonymous")], "is also declared by"),
    ],
)
def test_a_plugin_that_cannot_be_used(entries: list[EntryPoint], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        resolved({"plugins": {"deschedule": {"enabled": [{"name": "Anonymous"}]}}}, *entries)
