"""The operations of a workload as performance-config.yaml writes them; a field that nobody knows is an error."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from koordinator.api.component_configuration import Strict


class Operation(Strict, tag_field="opcode"):
    """Base of all; ``opcode`` says which one it is."""


class Counted(Operation):
    """``count_param`` (``$name``) takes the count from the workload's parameters."""

    count: int = 0
    count_param: str = ""


class LabelNodes(Strict):
    """Give the nodes of the operation a label, with the values in turn."""

    label_key: str
    label_values: list[str]


class UniqueNodeLabel(Strict):
    """Give every node of the operation a value of its own."""

    label_key: str


class VolumeCount(Strict):
    count: int


class NodeAllocatable(Strict):
    """Add allocatable resources, and a CSINode with the limits of volume drivers."""

    node_allocatable: dict[str, str] = {}
    csi_node_allocatable: dict[str, VolumeCount] = {}
    migrated_plugins: list[str] = []


class CreateNodes(Counted, tag="createNodes"):
    node_template_path: str | None = None
    node_allocatable_strategy: NodeAllocatable | None = None
    label_node_prepare_strategy: LabelNodes | None = None
    unique_node_label_strategy: UniqueNodeLabel | None = None


class CreateNamespaces(Counted, tag="createNamespaces"):
    prefix: str = ""
    namespace_template_path: str | None = None


class CreatePods(Counted, tag="createPods"):
    collect_metrics: bool = False
    namespace: str | None = None
    """Without one, ``namespace-N`` for the N-th operation."""
    pod_template_path: str | None = None
    skip_wait_to_completion: bool = False
    persistent_volume_template_path: str | None = None
    persistent_volume_claim_template_path: str | None = None
    steady_state: bool = False
    steady_state_param: str = ""
    duration: str = ""
    duration_param: str = ""


class CreatePodSets(Counted, tag="createPodSets"):
    """``create_pods_op`` in each of the namespaces ``namespace_prefix``-0, -1 and so on."""

    namespace_prefix: str = ""
    create_pods_op: CreatePods = CreatePods()


class CreateAny(Operation, tag="createAny"):
    template_path: str
    namespace: str = ""
    count: int | None = None
    count_param: str = ""


class UpdateAny(Operation, tag="updateAny"):
    template_path: str
    namespace: str = ""
    count: int | None = None
    count_param: str = ""
    update_per_second: int = 0
    """0: one right after the other."""
    subresources: list[str] = []
    """Whether to update one of these instead of the object itself; its status is updated in any case."""


class DeletePods(Operation, tag="deletePods"):
    namespace: str
    label_selector: dict[str, str] | None = None
    skip_wait_to_completion: bool = False
    delete_pods_per_second: int = 0
    """0: all at once."""


class Churn(Operation, tag="churn"):
    mode: Literal["create", "recreate"]
    template_paths: list[str]
    number: int = 0
    """How many of each to create, or to keep creating and deleting; 0: no limit."""
    interval_milliseconds: int = 500
    namespace: str | None = None


class Stage(Enum):
    SCHEDULED = "Scheduled"
    ATTEMPTED = "Attempted"


class Barrier(Operation, tag="barrier"):
    namespaces: list[str] | None = None
    label_selector: dict[str, str] | None = None
    stage_requirement: Stage = Stage.SCHEDULED


class Sleep(Operation, tag="sleep"):
    duration: str = ""
    duration_param: str = ""


class StartCollectingMetrics(Operation, tag="startCollectingMetrics"):
    namespaces: list[str]
    name: str = ""
    label_selector: dict[str, str] | None = None


class StopCollectingMetrics(Operation, tag="stopCollectingMetrics"):
    pass


class Unsupported(Operation, forbid_unknown_fields=False):
    """Known to scheduler_perf, but not run here: whatever it says is accepted, so that the rest of a file is usable."""


class CreateResourceDriver(Unsupported, tag="createResourceDriver"):
    pass


class CreateResourceClaims(Unsupported, tag="createResourceClaims"):
    pass


class AllocateResourceClaims(Unsupported, tag="allocResourceClaims"):
    pass


AnyOperation = (
    CreateNodes
    | CreateNamespaces
    | CreatePods
    | CreatePodSets
    | CreateAny
    | DeletePods
    | Churn
    | Barrier
    | Sleep
    | StartCollectingMetrics
    | StopCollectingMetrics
    | CreateResourceDriver
    | CreateResourceClaims
    | AllocateResourceClaims
    | UpdateAny
)
