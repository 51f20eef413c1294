from __future__ import annotations

from benchmarks.scheduler_perf import objects
from benchmarks.scheduler_perf.operations import CreateNodes, LabelNodes, NodeAllocatable, UniqueNodeLabel, VolumeCount
from benchmarks.scheduler_perf.templates import Document, Template

NODE = Template("{metadata: {generateName: node-}, spec: {}, status: {capacity: {cpu: '4'}}}", "inline")
CLAIM: Document = {
    "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "true"}},
    "spec": {"accessModes": ["ROX"]},
}
CSI_VOLUME: Document = {"spec": {"csi": {"driver": "ebs.csi.aws.com"}}}
AWS_VOLUME: Document = {"spec": {"awsElasticBlockStore": {"volumeID": "<volume-id>"}}}
ALLOCATABLE = NodeAllocatable(
    node_allocatable={"attachable-volumes-csi-ebs.csi.aws.com": "39"},
    csi_node_allocatable={"ebs.csi.aws.com": VolumeCount(count=39)},
    migrated_plugins=["kubernetes.io/aws-ebs"],
)


def nodes(operation: CreateNodes, template: Template | None = NODE, first: int = 0) -> list[Document]:
    return list(objects.nodes(operation, template, "node-0-", first))


def labels(operation: CreateNodes, name: str) -> list[str]:
    return [node["metadata"]["labels"][name] for node in nodes(operation)]


def test_nodes_are_numbered_on_from_those_that_exist() -> None:
    assert [node["metadata"]["name"] for node in nodes(CreateNodes(count=2), first=5)] == ["node-00005", "node-00006"]


def test_a_node_carries_its_name_as_hostname() -> None:
    assert labels(CreateNodes(count=1), objects.HOSTNAME) == ["node-00000"]


def test_a_name_in_the_template_stays() -> None:
    (node,) = nodes(CreateNodes(count=1), Template("{metadata: {name: only}}", "inline"))
    assert node["metadata"]["name"] == "only"


def test_without_a_template_nodes_are_those_of_scheduler_perf() -> None:
    (node,) = nodes(CreateNodes(count=1), None)
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "32Gi", "pods": "110"}


def test_labels_are_given_in_turn() -> None:
    strategy = LabelNodes(label_key="zone", label_values=["a", "b"])
    assert labels(CreateNodes(count=3, label_node_prepare_strategy=strategy), "zone") == ["a", "b", "a"]


def test_unique_labels_differ() -> None:
    found = labels(CreateNodes(count=3, unique_node_label_strategy=UniqueNodeLabel(label_key="unique")), "unique")
    assert len(set(found)) == 3


def test_allocatable_is_added_to_what_there_is() -> None:
    (node,) = nodes(CreateNodes(count=1, node_allocatable_strategy=ALLOCATABLE))
    assert node["status"]["allocatable"] == {"cpu": "4", "attachable-volumes-csi-ebs.csi.aws.com": "39"}


def test_volume_limits_are_in_the_csi_node() -> None:
    document = objects.csi_node("node-1", ALLOCATABLE)
    assert document["spec"]["drivers"] == [
        {"name": "ebs.csi.aws.com", "nodeID": "node-1", "allocatable": {"count": 39}}
    ]
    assert document["metadata"]["annotations"] == {
        "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"
    }


def test_claim_and_volume_name_each_other() -> None:
    claim, volume = objects.bound_volume(CLAIM, CSI_VOLUME, "ns", 7)
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "ns-vol-7"
    assert (volume["spec"]["claimRef"]["namespace"], volume["spec"]["claimRef"]["name"]) == ("ns", "pvc-7")
    assert claim["metadata"] == {**CLAIM["metadata"], "name": "pvc-7"}


def test_every_volume_is_a_place_of_its_own() -> None:
    _, csi = objects.bound_volume(CLAIM, CSI_VOLUME, "ns", 7)
    _, aws = objects.bound_volume(CLAIM, AWS_VOLUME, "ns", 7)
    assert csi["spec"]["csi"] == {"driver": "ebs.csi.aws.com", "volumeHandle": "ns-vol-7"}
    assert aws["spec"]["awsElasticBlockStore"] == {"volumeID": "ns-vol-7"}


def test_templates_are_not_changed() -> None:
    objects.bound_volume(CLAIM, AWS_VOLUME, "ns", 7)
    objects.with_claim(objects.BASE_POD, 7)
    assert AWS_VOLUME == {"spec": {"awsElasticBlockStore": {"volumeID": "<volume-id>"}}}
    assert "volumes" not in objects.BASE_POD["spec"]


def test_a_pod_uses_its_claim() -> None:
    pod = objects.with_claim(objects.BASE_POD, 7)
    assert pod["spec"]["volumes"] == [{"name": "vol", "persistentVolumeClaim": {"claimName": "pvc-7"}}]
