"""core/v1 Pod: the fields that scheduling, admission and the node agent read.

Lists are sequences here: one that is absent is the same empty tuple for all, where a list would be made anew for each
of a pod's twenty, and looked at by every garbage collection.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.meta import FreeForm, LabelSelector, LocalObjectReference, Object, ObjectMeta, WireStruct
from koordinator.api.quantity import Quantity
from koordinator.api.timestamps import Time

ResourceList = dict[str, Quantity]
"""Resource name -> amount."""


class ResourceClaimRequest(WireStruct):
    name: str = ""


class ResourceRequirements(WireStruct):
    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: Sequence[ResourceClaimRequest] = ()


class ContainerPort(WireStruct):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class EnvironmentVariable(WireStruct):
    name: str = ""
    value: str = ""


class Container(WireStruct):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: Sequence[ContainerPort] = ()
    env: Sequence[EnvironmentVariable] = ()
    restart_policy: str | None = None
    """``Always`` makes an init container a sidecar."""


class Toleration(WireStruct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(WireStruct):
    key: str = ""
    operator: str = ""
    values: Sequence[str] = ()


class NodeSelectorTerm(WireStruct):
    match_expressions: Sequence[NodeSelectorRequirement] = ()
    match_fields: Sequence[NodeSelectorRequirement] = ()


class NodeSelector(WireStruct):
    node_selector_terms: Sequence[NodeSelectorTerm] = ()


class PreferredSchedulingTerm(WireStruct):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(WireStruct):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Sequence[PreferredSchedulingTerm] = ()


class PodAffinityTerm(WireStruct):
    label_selector: LabelSelector | None = None
    namespaces: Sequence[str] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: Sequence[str] = ()
    mismatch_label_keys: Sequence[str] = ()


class WeightedPodAffinityTerm(WireStruct):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(WireStruct):
    """Also the shape of anti-affinity."""

    required_during_scheduling_ignored_during_execution: Sequence[PodAffinityTerm] = ()
    preferred_during_scheduling_ignored_during_execution: Sequence[WeightedPodAffinityTerm] = ()


class Affinity(WireStruct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(WireStruct):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: Sequence[str] = ()


class PodSchedulingGate(WireStruct):
    name: str = ""


class WorkloadReference(WireStruct):
    """The pod group of a Workload of scheduling.k8s.io."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PersistentVolumeClaimVolumeSource(WireStruct):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(WireStruct):
    volume_claim_template: FreeForm = {}


class CSIVolumeSource(WireStruct):
    driver: str = ""


class GCEPersistentDiskVolumeSource(WireStruct):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(WireStruct):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class AzureDiskVolumeSource(WireStruct):
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class CinderVolumeSource(WireStruct):
    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolumeSource(WireStruct):
    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSIVolumeSource(WireStruct):
    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(WireStruct):
    monitors: Sequence[str] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class EmptyDirVolumeSource(WireStruct):
    medium: str = ""


class HostPathVolumeSource(WireStruct):
    path: str = ""


class Volume(WireStruct):
    name: str = ""
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None


class PodResourceClaim(WireStruct):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(WireStruct):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    scheduler_name: str = ""
    runtime_class_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: Sequence[Toleration] = ()
    topology_spread_constraints: Sequence[TopologySpreadConstraint] = ()
    scheduling_gates: Sequence[PodSchedulingGate] = ()
    volumes: Sequence[Volume] = ()
    resource_claims: Sequence[PodResourceClaim] = ()
    image_pull_secrets: Sequence[LocalObjectReference] = ()
    host_network: bool = False
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    workload_ref: WorkloadReference | None = None


class PodCondition(WireStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None


class ContainerStateWaiting(WireStruct):
    reason: str = ""


class ContainerStateTerminated(WireStruct):
    reason: str = ""
    exit_code: int = 0


class ContainerState(WireStruct):
    """A container that runs has neither."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(WireStruct):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class PodStatus(WireStruct):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: Sequence[PodCondition] = ()
    container_statuses: Sequence[ContainerStatus] = ()
    init_container_statuses: Sequence[ContainerStatus] = ()
    ephemeral_container_statuses: Sequence[ContainerStatus] = ()
    nominated_node_name: str = ""
    qos_class: str = ""
    start_time: Time | None = None
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    resize: str = ""
    """Of kubelets before 1.33: what has become of a resize in place."""
    resources: ResourceRequirements | None = None
    """Of the whole pod, where the spec has some."""
    observed_generation: int | None = None
    """The metadata.generation that the kubelet has seen."""


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplateSpec(WireStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class Binding(Object):
    """The body of POST pods/NAME/binding."""

    target: dict[str, str] = {}


FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


def lasting_containers(pod: Pod) -> Sequence[Container]:
    """The containers that run as long as the pod does, the sidecars last: all but the init containers that end before
    the others start."""
    spec = pod.spec
    if not spec.init_containers:
        return spec.containers
    return [*spec.containers, *[each for each in spec.init_containers if each.restart_policy == "Always"]]


def is_finished(pod: Pod) -> bool:
    """Whether the pod will never run again, so that it occupies nothing."""
    return pod.status.phase in FINISHED_PHASES


def is_mirror(pod: Pod) -> bool:
    """The API server's picture of a static pod."""
    return annotation_keys.CONFIG_MIRROR in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    """Whether the kubelet has it from elsewhere than the API server, where the pod then is another object with another
    UID: neither its eviction nor its deletion there ends anything on the node."""
    return pod.metadata.annotations.get(annotation_keys.CONFIG_SOURCE, "api") != "api"
