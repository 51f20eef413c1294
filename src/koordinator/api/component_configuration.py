"""What the configuration files of all programs have in common (upstream: k8s.io/component-base/config/v1alpha1).

An unknown field is a mistake here, where an API server's objects may have fields that we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from koordinator.api.duration import GoDuration
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError

E = TypeVar("E", bound="LeaderElection")


class Strict(WireStruct, forbid_unknown_fields=True):
    """Base of component configuration: an unknown field is a mistake."""


class LeaderElection(Strict):
    """Programs differ in the defaults of the two names."""

    leader_elect: bool = True
    lease_duration: GoDuration = GoDuration(seconds=15)
    renew_deadline: GoDuration = GoDuration(seconds=10)
    retry_period: GoDuration = GoDuration(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnection(Strict):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    """Read and ignored: everything is JSON here."""
    qps: float = 50.0
    burst: int = 100


def complete_connection(given: ClientConnection) -> ClientConnection:
    """Zeros and empty texts are what is left out."""
    default = ClientConnection()
    return replace(
        given,
        qps=given.qps or default.qps,
        burst=given.burst or default.burst,
        content_type=given.content_type or default.content_type,
    )


def complete_election(given: E) -> E:
    """Zeros and empty texts are what is left out."""
    default = type(given)()
    return replace(
        given,
        lease_duration=given.lease_duration or default.lease_duration,
        renew_deadline=given.renew_deadline or default.renew_deadline,
        retry_period=given.retry_period or default.retry_period,
        resource_lock=given.resource_lock or default.resource_lock,
        resource_name=given.resource_name or default.resource_name,
        resource_namespace=given.resource_namespace or default.resource_namespace,
    )


def check_election(election: LeaderElection, path: str) -> None:
    """Raises ConfigurationError for what no election can be held with."""
    if election.resource_lock != "leases":
        raise ConfigurationError(f"{path}.resourceLock", election.resource_lock, "leases")
    for field, period in (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ):
        if period <= timedelta():
            raise ConfigurationError(f"{path}.{field}", format_duration(period), "more than 0s")
    if election.lease_duration <= election.renew_deadline:
        allowed = f"more than renewDeadline ({format_duration(election.renew_deadline)})"
        raise ConfigurationError(f"{path}.leaseDuration", format_duration(election.lease_duration), allowed)


def plain_document(value: Any) -> Any:
    """Wire names, and every field that is set, also where it has its default."""
    if isinstance(value, msgspec.Struct):
        members = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        return {name: plain_document(item) for name, item in members if item is not None}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_document(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return {key: plain_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_document(item) for item in value]
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Quantity) else value
