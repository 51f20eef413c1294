"""config.koordinator.sh ClusterColocationProfile: what admission adds to which pods."""

from __future__ import annotations

from typing import Annotated, Any

from koordinator.api.constraints import Int32, IntOrString, Schema
from koordinator.api.meta import LabelSelector, Object, WireStruct
from koordinator.api.qos import QoSClass


class ClusterColocationProfileSpec(WireStruct):
    """Which pods are changed, and how."""

    namespace_selector: LabelSelector | None = None
    """None and an empty selector are all namespaces."""
    selector: LabelSelector | None = None
    """Of pods; None and an empty selector are all of them."""
    probability: IntOrString | None = None
    """The share of matching pods that is changed: percent as a number, or text such as 30%; None is all."""
    qos_class: Annotated[str, Schema(enum=tuple(name.value for name in QoSClass if name))] = ""
    """The quality-of-service class that pods get, such as BE."""
    priority_class_name: str = ""
    """The PriorityClass that pods get; it also decides to which kind of resources their requests are turned."""
    koordinator_priority: Int32 | None = None
    """The sub-priority."""
    labels: dict[str, str] = {}
    """Labels that pods get."""
    annotations: dict[str, str] = {}
    """Annotations that pods get."""
    label_keys_mapping: dict[str, str] = {}
    """Existing label -> the new label that gets its value."""
    annotation_keys_mapping: dict[str, str] = {}
    """Existing annotation -> the new annotation that gets its value."""
    label_suffixes: dict[str, str] = {}
    """Label -> what is appended to its value."""
    scheduler_name: str = ""
    """The scheduler that places the pods."""
    patch: Annotated[Any, Schema(schemaless=True)] = None
    """A strategic merge patch of the pod, applied last."""


class ClusterColocationProfileStatus(WireStruct):
    """Empty."""


class ClusterColocationProfile(Object):
    """What admission adds to the pods that it selects: quality of service, priority, labels, a scheduler."""

    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()
    status: ClusterColocationProfileStatus = ClusterColocationProfileStatus()
