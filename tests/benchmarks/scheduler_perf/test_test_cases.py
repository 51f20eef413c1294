from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scheduler_perf.operations import (
    Barrier,
    Churn,
    CreateNodes,
    CreatePods,
    CreatePodSets,
    CreateResourceDriver,
    DeletePods,
    LabelNodes,
    Sleep,
    Stage,
    StartCollectingMetrics,
    StopCollectingMetrics,
    UpdateAny,
    VolumeCount,
)
from benchmarks.scheduler_perf.test_cases import TestCase, find_workloads, parse_test_cases
from koordinator.base.errors import ConfigurationError

BASIC = """\
- name: Basic
  defaultPodTemplatePath: ../templates/pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  workloads:
  - name: small
    labels: [performance, short]
    threshold: 270
    featureGates: {SchedulerQueueingHints: true}
    params: {nodes: 5, pods: 10}
"""


def case_with(operations: str) -> TestCase:
    """A test case of these operations, followed by one that collects metrics."""
    text = f"- name: Case\n  workloads: [{{name: w}}]\n  workloadTemplate:\n{operations}"
    (case,) = parse_test_cases(text + "  - {opcode: createPods, count: 1, collectMetrics: true}\n", "inline")
    return case


def refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_test_cases(text, "inline")
    return str(caught.value)


def test_a_test_case_has_operations_and_workloads() -> None:
    (case,) = parse_test_cases(BASIC, "inline")
    assert (case.name, case.default_pod_template_path) == ("Basic", "../templates/pod.yaml")
    assert case.workload_template == [
        CreateNodes(count_param="$nodes"),
        CreatePods(count_param="$pods", collect_metrics=True),
    ]
    (workload,) = case.workloads
    assert (workload.name, workload.threshold, workload.params) == ("small", 270, {"nodes": 5, "pods": 10})


def test_a_threshold_may_depend_on_the_topic() -> None:
    (case,) = parse_test_cases(BASIC.replace("threshold: 270", "threshold: {default: 100, dra: 20}"), "inline")
    assert case.workloads[0].threshold == {"default": 100, "dra": 20}


def test_node_strategies() -> None:
    case = case_with(
        """\
  - opcode: createNodes
    count: 3
    nodeTemplatePath: ../templates/node.yaml
    labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}
  - opcode: createNodes
    count: 3
    nodeAllocatableStrategy:
      nodeAllocatable: {attachable-volumes-csi-ebs.csi.aws.com: "39"}
      csiNodeAllocatable: {ebs.csi.aws.com: {count: 39}}
      migratedPlugins: [kubernetes.io/aws-ebs]
  - opcode: createNodes
    count: 3
    uniqueNodeLabelStrategy: {labelKey: unique}
"""
    )
    labelled, limited, unique = case.workload_template[:3]
    assert isinstance(labelled, CreateNodes)
    assert isinstance(limited, CreateNodes)
    assert isinstance(unique, CreateNodes)
    assert labelled.label_node_prepare_strategy == LabelNodes(label_key="zone", label_values=["a", "b"])
    assert limited.node_allocatable_strategy is not None
    assert limited.node_allocatable_strategy.csi_node_allocatable == {"ebs.csi.aws.com": VolumeCount(count=39)}
    assert unique.unique_node_label_strategy is not None


def test_pod_sets_hold_an_operation() -> None:
    case = case_with(
        """\
  - opcode: createPodSets
    countParam: $namespaces
    namespacePrefix: ns
    createPodsOp: {opcode: createPods, countParam: $each, podTemplatePath: pod.yaml}
"""
    )
    assert case.workload_template[0] == CreatePodSets(
        count_param="$namespaces",
        namespace_prefix="ns",
        create_pods_op=CreatePods(count_param="$each", pod_template_path="pod.yaml"),
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{opcode: barrier}", Barrier()),
        ("{opcode: barrier, stageRequirement: Attempted}", Barrier(stage_requirement=Stage.ATTEMPTED)),
        ("{opcode: barrier, labelSelector: {type: a}}", Barrier(label_selector={"type": "a"})),
        ("{opcode: sleep, durationParam: $time}", Sleep(duration_param="$time")),
        (
            "{opcode: churn, mode: recreate, number: 1, templatePaths: [a.yaml], intervalMilliseconds: 1000}",
            Churn(mode="recreate", number=1, template_paths=["a.yaml"], interval_milliseconds=1000),
        ),
        (
            "{opcode: deletePods, namespace: a, deletePodsPerSecond: 50, skipWaitToCompletion: true}",
            DeletePods(namespace="a", delete_pods_per_second=50, skip_wait_to_completion=True),
        ),
        (
            "{opcode: updateAny, templatePath: a, updatePerSecond: 100, subresources: [resize]}",
            UpdateAny(template_path="a", update_per_second=100, subresources=["resize"]),
        ),
        ("{opcode: startCollectingMetrics, namespaces: [a]}", StartCollectingMetrics(namespaces=["a"])),
        ("{opcode: stopCollectingMetrics}", StopCollectingMetrics()),
        ("{opcode: createResourceDriver, driverName: d, nodes: n, maxClaims: 3}", CreateResourceDriver()),
    ],
)
def test_operations(written: str, expected: object) -> None:
    assert case_with(f"  - {written}\n").workload_template[0] == expected


@pytest.mark.parametrize(
    ("replaced", "by", "expected"),
    [
        ("countParam: $nodes", "countParm: $nodes", "countParm"),
        ("opcode: createNodes", "opcode: createNode", "createNode"),
        ("countParam: $nodes", "countParam: nodes", "$name"),
        ("countParam: $nodes", "count: -1", "0 or more"),
        ("collectMetrics: true", "collectMetrics: false", "collects metrics"),
        ("collectMetrics: true", "collectMetrics: true\n    skipWaitToCompletion: true", "not both"),
        ("threshold: 270", "treshold: 270", "treshold"),
        ("name: Basic", "name: Basic\n  name: Again", "only once"),
        ("  - name: small", "  - name: small\n  - name: small", "only one workload of Basic has"),
    ],
)
def test_mistakes_are_named(replaced: str, by: str, expected: str) -> None:
    assert expected in refusal(BASIC.replace(replaced, by, 1))


@pytest.mark.parametrize(
    "operation",
    [
        "{opcode: churn, mode: recreate, templatePaths: [a.yaml]}",
        "{opcode: churn, mode: create, templatePaths: []}",
        "{opcode: churn, mode: destroy, templatePaths: [a.yaml]}",
        "{opcode: createNodes, count: 1, labelNodePrepareStrategy: {labelKey: a, labelValues: []}}",
        "{opcode: barrier, stageRequirement: Bound}",
    ],
)
def test_operations_that_make_no_sense_are_refused(operation: str) -> None:
    with pytest.raises(ConfigurationError):
        case_with(f"  - {operation}\n")


def test_an_empty_file_is_refused() -> None:
    assert "at least one test case" in refusal("[]")


def test_the_files_below_a_folder_are_found(tmp_path: Path) -> None:
    for name in ("affinity", "misc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "performance-config.yaml").write_text(BASIC.replace("Basic", name))
    assert [(one.folder.name, one.case.name) for one in find_workloads(tmp_path)] == [
        ("affinity", "affinity"),
        ("misc", "misc"),
    ]


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"performance-config\.yaml"):
        find_workloads(tmp_path)
