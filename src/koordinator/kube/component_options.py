"""The stanzas clientConnection and leaderElection of a program's configuration: their flags, and what is made of them.

As in upstream's programs, a flag that is given wins over the configuration file, but for the kubeconfig, which the file
decides where it names one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from koordinator.api.component_configuration import ClientConnection, LeaderElection
from koordinator.api.duration import GoDuration
from koordinator.base.flag_types import Flag, FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.base.metrics import Metrics
from koordinator.kube.connect import ClientOptions, user_agent
from koordinator.kube.leader_election_config import LeaderElectionConfig, make_identity
from koordinator.kube.write_policy import ReadOnly


class ClientFlags:
    """``--kubeconfig``, ``--master``, ``--kube-api-qps`` and ``--kube-api-burst``."""

    def __init__(self, group: FlagGroup, default: ClientConnection) -> None:
        self.kubeconfig = group.string(
            "kubeconfig",
            "",
            "How to reach the cluster, unless the configuration says it; without either, KUBECONFIG, ~/.kube/config or "
            "the service account of the pod that this runs in.",
            placeholder="file",
        )
        self.master = group.string("master", "", "The API server's address, in the place of the kubeconfig's.")
        self._limits: dict[str, Flag[Any]] = {
            "qps": group.number("kube-api-qps", default.qps, "Requests a second; overrides the configuration."),
            "burst": group.integer("kube-api-burst", default.burst, "Requests at once; overrides the configuration."),
        }

    def overrides(self, given: FlagValues) -> dict[str, Any]:
        """The fields of ``ClientConnection`` that the command line sets."""
        return _overrides(self._limits, given)


class LeaderElectionFlags:
    """``--leader-elect`` and those that begin with ``--leader-elect-``."""

    def __init__(self, group: FlagGroup, default: LeaderElection, work: str) -> None:
        """``work`` is what only a leader does, such as ``Schedule``."""
        self._flags: dict[str, Flag[Any]] = {
            "leader_elect": group.boolean(
                "leader-elect",
                default.leader_elect,
                f"{work} only as the leader. As the flags below, this overrides the configuration.",
            ),
            "lease_duration": group.duration(
                "leader-elect-lease-duration",
                default.lease_duration,
                "How long the others wait for a leader that is silent.",
            ),
            "renew_deadline": group.duration(
                "leader-elect-renew-deadline", default.renew_deadline, "How long a leader tries to renew."
            ),
            "retry_period": group.duration(
                "leader-elect-retry-period", default.retry_period, "The time between two tries."
            ),
            "resource_name": group.string(
                "leader-elect-resource-name", default.resource_name, "The name of the lease."
            ),
            "resource_namespace": group.string(
                "leader-elect-resource-namespace", default.resource_namespace, "The namespace of the lease."
            ),
        }

    def overrides(self, given: FlagValues) -> dict[str, Any]:
        """The fields of ``LeaderElection`` that the command line sets."""
        return _overrides(self._flags, given)


def client_options(
    connection: ClientConnection,
    program: str,
    metrics: Metrics,
    *,
    kubeconfig: str = "",
    master: str = "",
    read_only: ReadOnly | None = None,
) -> ClientOptions:
    """How ``program`` reaches the API server; ``kubeconfig`` and ``master`` are those of the flags."""
    return ClientOptions(
        kubeconfig=connection.kubeconfig or kubeconfig,
        master=master,
        qps=connection.qps,
        burst=connection.burst,
        user_agent=user_agent(program),
        metrics=metrics,
        read_only=read_only,
    )


def election_config(election: LeaderElection, host: str) -> LeaderElectionConfig | None:
    """The election to take part in, None for none. Raises ConfigurationError."""
    if not election.leader_elect:
        return None
    return LeaderElectionConfig(
        name=election.resource_name,
        namespace=election.resource_namespace,
        identity=make_identity(host),
        lease_duration=election.lease_duration.total_seconds(),
        renew_deadline=election.renew_deadline.total_seconds(),
        retry_period=election.retry_period.total_seconds(),
        release_on_cancel=True,
    )


def _overrides(flags: dict[str, Flag[Any]], given: FlagValues) -> dict[str, Any]:
    values = {name: given[flag] for name, flag in flags.items() if given.is_set(flag)}
    return {
        name: GoDuration(seconds=value.total_seconds()) if isinstance(value, timedelta) else value
        for name, value in values.items()
    }
