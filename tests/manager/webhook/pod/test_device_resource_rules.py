"""GPU requests that are refused: the cases of the original's own test, and the others of its rules."""

from __future__ import annotations

import pytest

from koordinator.api.document import Document
from koordinator.manager.webhook.pod.validating import PodRefused, PodValidatingHandler, PodValidationSettings
from tests.manager.webhook.small_cluster import request_for

AT = "pod.spec.containers[*].resources.requests"
GPU = "koordinator.sh/gpu"
SHARED = "koordinator.sh/gpu.shared"
CORE = "koordinator.sh/gpu-core"
MEMORY = "koordinator.sh/gpu-memory"
RATIO = "koordinator.sh/gpu-memory-ratio"
NPU = "huawei.com/npu-core"


def refusal(*requests: Document, enabled: bool = True) -> str | None:
    handler = PodValidatingHandler(settings=PodValidationSettings(device_resources=enabled))
    containers = [{"name": f"c{at}", "resources": {"requests": each}} for at, each in enumerate(requests)]
    try:
        handler.handle(request_for({"metadata": {"name": "a"}, "spec": {"containers": containers}}))
    except PodRefused as refused:
        return str(refused)
    return None


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        ({"cpu": "1"}, None),
        ({GPU: "200"}, None),
        ({GPU: "70"}, None),
        ({GPU: "0"}, f'{AT}: Invalid value: "0": the requested GPU must be greater than zero'),
        ({GPU: "150"}, f'{AT}: Invalid value: "150": the requested GPU must be percentage of 100'),
        ({GPU: "100", SHARED: "0"}, f"{AT}: Forbidden: Forbidden declare GPU and GPU share at same time"),
        (
            {MEMORY: "4000", RATIO: "100", SHARED: "1"},
            f"{AT}: Forbidden: declare GPU memory and GPU memory ratio at same time",
        ),
        ({SHARED: "2"}, f"{AT}: Forbidden: GPU memory and GPU memory ratio all is zero"),
        (
            {CORE: "101", RATIO: "100", SHARED: "2"},
            f'{AT}: Invalid value: "101": the requested gpuCore must multiple of shared',
        ),
        (
            {RATIO: "101", SHARED: "2"},
            f'{AT}: Invalid value: "101": the requested gpuMemoryRatio must multiple of shared',
        ),
        ({NPU: "8", SHARED: "1"}, None),
        ({NPU: "8", SHARED: "0"}, f'{AT}: Invalid value: "0": the requested GPU must be greater than zero'),
        (
            {SHARED: "0"},
            f'[{AT}: Invalid value: "0": the requested GPU must be greater than zero, '
            f"{AT}: Forbidden: GPU memory and GPU memory ratio all is zero]",
        ),
        ({MEMORY: "4Gi", SHARED: "2"}, None),
    ],
)
def test_one_container(requests: Document, wanted: str | None) -> None:
    assert refusal(requests) == wanted


def test_the_same_mistake_of_two_containers_is_named_once() -> None:
    assert refusal({SHARED: "2"}, {SHARED: "2"}) == f"{AT}: Forbidden: GPU memory and GPU memory ratio all is zero"


def test_without_the_gate_everything_passes() -> None:
    assert refusal({SHARED: "2"}, enabled=False) is None
