"""MigrationControllerArgs: the defaults, and what is refused with the name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import make_arguments
from koordinator.descheduler.migration.arguments import MigrationControllerArgs


def made(**fields: Any) -> MigrationControllerArgs:
    args, _ = make_arguments("MigrationController", MigrationControllerArgs, fields, "args")
    assert isinstance(args, MigrationControllerArgs)
    return args


def test_the_defaults() -> None:
    args = made(objectLimiters={})
    assert (args.max_migrating_per_node, args.default_job_mode, args.eviction_policy) == (
        2,
        "ReservationFirst",
        "Eviction",
    )
    assert (args.default_job_ttl.total_seconds(), args.arbitration_args.interval.total_seconds()) == (300, 0.5)
    assert args.object_limiters["workload"].duration.total_seconds() == 300
    assert args.scheduler_names == ["koord-scheduler"]


@pytest.mark.parametrize("written", ["10", 10, 10.0, "1e1"])
def test_a_rate_may_be_a_number_or_a_text(written: object) -> None:
    assert made(evictQPS=written).evictions_per_second == 10


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"maxConcurrentReconciles": 0}, "args.maxConcurrentReconciles"),
        ({"maxMigratingPerNode": -1}, "args.maxMigratingPerNode"),
        ({"maxMigratingPerWorkload": "ten"}, "args.maxMigratingPerWorkload"),
        ({"maxUnavailablePerWorkload": -1}, "args.maxUnavailablePerWorkload"),
        ({"evictQPS": "fast"}, "args.evictQPS"),
        ({"evictQPS": "inf"}, "args.evictQPS"),
        ({"evictBurst": 0}, "args.evictBurst"),
        ({"evictionPolicy": "Push"}, "args.evictionPolicy"),
        ({"defaultJobMode": "Later"}, "args.defaultJobMode"),
        ({"defaultJobTTL": "-1s"}, "args.defaultJobTTL"),
        ({"skipEvictionGates": ["PVC", "Everything"]}, "args.skipEvictionGates[1]"),
        ({"namespaces": {"include": ["a"], "exclude": ["b"]}}, "args.namespaces"),
        ({"objectLimiters": {"node": {}}}, "args.objectLimiters"),
        ({"objectLimiters": {"workload": {"duration": "-1s"}}}, "args.objectLimiters[workload].duration"),
        ({"arbitrationArgs": {"interval": "0s"}}, "args.arbitrationArgs.interval"),
        ({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "args.labelSelector"),
        ({"priorityThreshold": {"value": 1, "name": "high"}}, "args.priorityThreshold"),
        ({"maxMigratingPerPlanet": 1}, "args.maxMigratingPerPlanet"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        made(**fields)
    assert refused.value.field == where
