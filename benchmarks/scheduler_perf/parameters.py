"""From a workload's parameters to operations with plain numbers, smaller by a factor where wanted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from benchmarks.scheduler_perf.operations import (
    AnyOperation,
    Counted,
    CreateAny,
    CreateNodes,
    CreatePods,
    CreatePodSets,
    Sleep,
    Unsupported,
    UpdateAny,
)
from benchmarks.scheduler_perf.test_cases import Parameter, TestCase, Workload
from koordinator.base.errors import ConfigurationError

T = TypeVar("T", bound=Parameter)

_STEADY_STATE: Final = "steadyState"


class Parameters:
    """The parameters of one workload, and which of them have been requested."""

    def __init__(self, workload: Workload, scale: float = 1.0) -> None:
        self._workload = workload
        self._scale = scale
        self._taken: dict[str, Parameter] = {}

    @property
    def taken(self) -> Mapping[str, Parameter]:
        """Name -> value as it was handed out, after scaling."""
        return self._taken

    @property
    def unused(self) -> list[str]:
        return [name for name in self._workload.params if name not in self._taken]

    def count(self, reference: str, *, round_up: bool) -> int:
        """A number of objects, scaled. One that is not 0 stays at least 1."""
        whole = self._value(reference, int)
        scaled = whole * self._scale
        # 500 × 0.1 is 50, also where binary fractions make it a little more or less.
        rounded = math.ceil(scaled - 1e-9) if round_up else math.floor(scaled + 1e-9)
        count = min(whole, max(rounded, 1))
        self._taken[reference[1:]] = count
        return count

    def value(self, reference: str, expected: type[T]) -> T:
        """A parameter that is no number of objects."""
        found = self._value(reference, expected)
        self._taken[reference[1:]] = found
        return found

    def _value(self, reference: str, expected: type[T]) -> T:
        name = reference.removeprefix("$")
        found = self._workload.params.get(name)
        # A bool is an int in Python, but no count.
        if not isinstance(found, expected) or (expected is int and isinstance(found, bool)):
            allowed = f"a parameter of workload {self._workload.name} that is {expected.__name__}"
            raise ConfigurationError(reference, found, allowed)
        return found


def operations_of(case: TestCase, parameters: Parameters) -> list[AnyOperation]:
    """The operations to run, one after the other. Raises ConfigurationError for what cannot be run."""
    operations = [one for template in case.workload_template for one in _unrolled(template, parameters)]
    if parameters.unused:
        raise ConfigurationError(
            f"the parameters of {case.name}", parameters.unused, "parameters that an operation uses"
        )
    return operations


def unsupported(case: TestCase) -> list[str]:
    """What the test case uses that is not run here."""
    names = {str(type(one).__struct_config__.tag) for one in case.workload_template if isinstance(one, Unsupported)}
    if any(_may_be_steady(operation) for operation in case.workload_template):
        names.add(_STEADY_STATE)
    return sorted(names)


def _may_be_steady(operation: AnyOperation) -> bool:
    pods = operation.create_pods_op if isinstance(operation, CreatePodSets) else operation
    return isinstance(pods, CreatePods) and (pods.steady_state or bool(pods.steady_state_param))


def _unrolled(operation: AnyOperation, parameters: Parameters) -> Iterator[AnyOperation]:
    if isinstance(operation, Unsupported) or _may_be_steady(operation):
        name = _STEADY_STATE if isinstance(operation, Counted) else str(type(operation).__struct_config__.tag)
        raise ConfigurationError("opcode", name, f"{name} is not supported")
    resolved = _resolved(operation, parameters)
    if not isinstance(resolved, CreatePodSets):
        yield resolved
        return
    for number in range(resolved.count):
        pods = _resolved(resolved.create_pods_op, parameters)
        yield msgspec.structs.replace(pods, namespace=f"{resolved.namespace_prefix}-{number}")


def _resolved(operation: AnyOperation, parameters: Parameters) -> AnyOperation:
    match operation:
        case Counted() | CreateAny() | UpdateAny() if operation.count_param:
            # Nodes up, pods down: what fits at full size should fit at every scale.
            count = parameters.count(operation.count_param, round_up=isinstance(operation, CreateNodes))
            return msgspec.structs.replace(operation, count=count)
        case Sleep() if operation.duration_param:
            duration = parameters.value(operation.duration_param, str)
            return msgspec.structs.replace(operation, duration=duration)
        case _:
            return operation
