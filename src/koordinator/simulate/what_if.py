"""Runs a whole simulation: loads a snapshot, makes the changes, and returns the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from koordinator.cluster.errors import ApiError
from koordinator.scheduler.configuration import SchedulerConfiguration, not_built
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.simulate.captured_log import captured_log
from koordinator.simulate.change import Change, ChangeError, Remarks
from koordinator.simulate.configurations import configuration_of, with_kube_scheduler
from koordinator.simulate.outcome import Baseline, outcome
from koordinator.simulate.simulated_cluster import SimulationOptions, simulated
from koordinator.simulate.snapshot import Snapshot


async def what_if(
    snapshot: Snapshot,
    changes: Sequence[Change],
    configuration: SchedulerConfiguration | None = None,
    options: SimulationOptions | None = None,
) -> dict[str, Any]:
    """The effect of the changes, made one after the other, on the cluster of the snapshot. ``configuration`` is the
    scheduler's; None: that of the snapshot.

    The same arguments give the same result. Raises ChangeError for changes that cannot be made, or that an API server
    refuses, SnapshotError and ConfigurationError for input that cannot be decoded.
    """
    configuration, source = (configuration, "the file that was given") if configuration else configuration_of(snapshot)
    complete = with_kube_scheduler(configuration)
    with captured_log() as log:
        document = await _outcome(snapshot, changes, complete, options)
    left_out = not_built(configuration, BUILT_IN)
    if left_out:
        document["notes"].append(f"plugins that are not built here and are left out: {', '.join(left_out)}")
    document["log"] = list(log)
    document["scheduler"] = {
        "configuration": source,
        "profiles": [profile.scheduler_name for profile in configuration.profiles],
        "kubeScheduler": complete is not configuration,
    }
    return document


async def _outcome(
    snapshot: Snapshot,
    changes: Sequence[Change],
    configuration: SchedulerConfiguration,
    options: SimulationOptions | None,
) -> dict[str, Any]:
    remarks: list[Remarks] = []
    async with simulated(snapshot, configuration, options) as cluster:
        baseline = Baseline.of(cluster)
        for change in changes:
            remark = Remarks()
            remarks.append(remark)
            try:
                await change.apply(cluster, remark)
            except ApiError as error:
                raise ChangeError(f"an API server would refuse it: {error.message}") from error
        return outcome(snapshot, cluster, baseline, remarks)
