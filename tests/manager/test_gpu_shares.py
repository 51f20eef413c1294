"""The pod webhook and the noderesource controller agree on the resources of GPUs, with the default feature gates."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.device import Device
from koordinator.manager.features import ENABLE_SYNC_GPU_SHARED_RESOURCE, make_features
from koordinator.manager.webhook.pod.resource_specs import normalise_device_resources
from koordinator.model.overcommit.device_resources import gpu_resources

GPU = {
    "type": "gpu",
    "id": "GPU-1",
    "minor": 0,
    "health": True,
    "resources": {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "80Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    },
}


@pytest.mark.parametrize(
    "requests", [{"gpu": "100"}, {"gpu-core": "50", "gpu-memory-ratio": "50"}, {"gpu-memory": "8Gi"}]
)
def test_a_node_has_every_resource_that_the_webhook_adds_to_a_pod(requests: dict[str, str]) -> None:
    amounts = {f"koordinator.sh/{name}": amount for name, amount in requests.items()}
    container: dict[str, Any] = {"name": "main", "resources": {"requests": dict(amounts), "limits": dict(amounts)}}
    normalise_device_resources({"spec": {"containers": [container]}})
    device = convert({"metadata": {"name": "node"}, "spec": {"devices": [GPU]}}, Device)
    shared = make_features().enabled(ENABLE_SYNC_GPU_SHARED_RESOURCE)
    assert container["resources"]["requests"].keys() <= gpu_resources(device, shared).amounts.keys()
