"""performance-config.yaml: test cases, their workloads and parameters, read strictly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.scheduler_perf.operations import (
    AnyOperation,
    Churn,
    CreateNodes,
    CreatePods,
    CreatePodSets,
    StopCollectingMetrics,
)
from koordinator.api.component_configuration import Strict
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents

FILE_NAME: Final = "performance-config.yaml"

Parameter = int | float | str | bool


class Workload(Strict):
    """One set of parameters. ``threshold``: what Kubernetes requires on its own machines, for all or by topic."""

    name: str
    params: dict[str, Parameter] = {}
    labels: list[str] = []
    threshold: float | dict[str, float] | None = None
    threshold_metric_selector: dict[str, Any] | None = None
    feature_gates: dict[str, bool] = {}


class TestCase(Strict):
    """A sequence of operations that each of the workloads fills with its parameters."""

    __test__ = False

    name: str
    workload_template: list[AnyOperation]
    workloads: list[Workload]
    feature_gates: dict[str, bool] = {}
    metrics_collector_config: dict[str, Any] | None = None
    scheduler_config_path: str = ""
    default_pod_template_path: str | None = None
    default_threshold_metric_selector: dict[str, Any] | None = None
    labels: list[str] = []


@dataclass(frozen=True, slots=True)
class Found:
    """A workload of a test case of the file in ``folder``; paths in operations are relative to that folder."""

    folder: Path
    case: TestCase
    workload: Workload


def find_workloads(path: Path) -> list[Found]:
    """All workloads of a file, or of all the performance-config.yaml below a folder. Raises ConfigurationError."""
    files = [path] if path.is_file() else sorted(path.rglob(FILE_NAME))
    if not files:
        raise ConfigurationError("--config", str(path), f"a {FILE_NAME}, or a folder that has one somewhere below it")
    return [
        Found(file.parent, case, workload)
        for file in files
        for case in parse_test_cases(file.read_text(), str(file))
        for workload in case.workloads
    ]


def parse_test_cases(text: str, source: str) -> list[TestCase]:
    """The test cases of one file. Raises ConfigurationError that names the place."""
    documents = load_documents(text, source)
    if len(documents) != 1:
        raise ConfigurationError(source, f"{len(documents)} documents", "one list of test cases")
    try:
        cases = msgspec.convert(documents[0], list[TestCase])
    except msgspec.ValidationError as error:
        raise ConfigurationError(source, "the document", str(error)) from error
    for problem in _problems(cases):
        raise ConfigurationError(source, problem[0], problem[1])
    return cases


def _problems(cases: list[TestCase]) -> Iterator[tuple[str, str]]:
    """(what, what is allowed) for everything that its type does not rule out."""
    if not cases:
        yield "an empty list", "at least one test case"
    yield from _repeated((case.name for case in cases), "test case")
    for case in cases:
        if not case.workloads:
            yield case.name, "a test case with at least one workload"
        yield from _repeated((workload.name for workload in case.workloads), f"workload of {case.name}")
        if not any(_collects(operation) for operation in case.workload_template):
            yield case.name, "a test case with an operation that collects metrics"
        for number, operation in enumerate(case.workload_template):
            for allowed in _operation_problems(operation):
                yield f"{case.name}, operation {number}", allowed


def _repeated(names: Iterable[str], what: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name, f"a name that only one {what} has"
        seen.add(name)


def _collects(operation: AnyOperation) -> bool:
    match operation:
        case CreatePods():
            return operation.collect_metrics
        case CreatePodSets():
            return operation.create_pods_op.collect_metrics
        case _:
            return isinstance(operation, StopCollectingMetrics)


def _operation_problems(operation: AnyOperation) -> Iterator[str]:
    for field in ("count_param", "duration_param", "steady_state_param"):
        parameter = getattr(operation, field, "")
        if parameter and not parameter.startswith("$"):
            yield f"a parameter that is written $name, not {parameter!r}"
    if (getattr(operation, "count", 0) or 0) < 0:
        yield "a count of 0 or more"
    match operation:
        case CreatePods() if operation.collect_metrics and operation.skip_wait_to_completion:
            yield "collectMetrics or skipWaitToCompletion, not both"
        case CreatePods() if operation.skip_wait_to_completion and operation.steady_state:
            yield "skipWaitToCompletion or steadyState, not both"
        case CreateNodes() if operation.label_node_prepare_strategy is not None:
            if not operation.label_node_prepare_strategy.label_values:
                yield "at least one label value"
        case Churn() if not operation.template_paths:
            yield "at least one template"
        case Churn() if operation.number < 0 or (operation.mode == "recreate" and operation.number == 0):
            yield "a number of 0 or more, and of 1 or more to recreate"
        case CreatePodSets():
            yield from _operation_problems(operation.create_pods_op)
        case _:
            pass
