"""What devices come to: the worked examples of the original, and what becomes of a device that is gone."""

from __future__ import annotations

from typing import Any, Final

import pytest

from koordinator.api.codec import convert
from koordinator.api.device import Device
from koordinator.model.overcommit.device_resources import GPU_RESOURCES, gpu_resources, rdma_resources

VENDOR: Final = "node.koordinator.sh/gpu-vendor"
MODEL: Final = "node.koordinator.sh/gpu-model"
DRIVER: Final = "node.koordinator.sh/gpu-driver-version"
GPU: Final = "koordinator.sh/gpu"
CORE: Final = "koordinator.sh/gpu-core"
MEMORY: Final = "koordinator.sh/gpu-memory"
RATIO: Final = "koordinator.sh/gpu-memory-ratio"
SHARED: Final = "koordinator.sh/gpu.shared"
RDMA: Final = "koordinator.sh/rdma"
NVIDIA_CARD: Final = {CORE: "100", MEMORY: "8000", RATIO: "100", "example.com/other": "1"}
NPU_CARD: Final = {"huawei.com/npu-core": "20", "huawei.com/npu-cpu": "20", "huawei.com/npu-dvpp": "100", RATIO: "100"}


def device(*cards: tuple[str, bool, dict[str, str]], **labels: str) -> Device:
    """``cards``: type, health and resources of each."""
    named: dict[str, Any] = {f"node.koordinator.sh/{key.replace('_', '-')}": text for key, text in labels.items()}
    return convert(
        {
            "metadata": {"name": "n", "labels": {**named, "other": "label"}},
            "spec": {"devices": [{"type": kind, "health": well, "resources": what} for kind, well, what in cards]},
        },
        Device,
    )


def amounts(of: Device | None, sync_shared: bool = False) -> dict[str, str]:
    return {name: str(amount) for name, amount in gpu_resources(of, sync_shared).amounts.items()}


TWO_NVIDIA = (("gpu", True, NVIDIA_CARD), ("gpu", True, {**NVIDIA_CARD, MEMORY: "10000"}), ("gpu", False, NVIDIA_CARD))


@pytest.mark.parametrize("vendor", ["nvidia", None])
def test_cards_add_up(vendor: str | None) -> None:
    labels = {} if vendor is None else {"gpu_vendor": vendor}

    assert amounts(device(*TWO_NVIDIA, **labels)) == {GPU: "200", CORE: "200", MEMORY: "18k", RATIO: "200"}


def test_shares_of_cards_are_counted_on_demand() -> None:
    assert amounts(device(*TWO_NVIDIA), sync_shared=True)[SHARED] == "200"


def test_cards_of_other_vendors_have_no_percents() -> None:
    npu = device(("gpu", True, NPU_CARD), ("gpu", True, NPU_CARD), gpu_vendor="huawei")

    assert amounts(npu) == {
        "huawei.com/npu-core": "40",
        "huawei.com/npu-cpu": "40",
        "huawei.com/npu-dvpp": "200",
        RATIO: "200",
    }


def test_what_no_card_has_any_more_is_removed_and_shares_are_left_alone() -> None:
    found = gpu_resources(device(*TWO_NVIDIA), sync_shared=False)

    assert set(found.removed) == {"huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp"}


@pytest.mark.parametrize(
    "without",
    [None, device(), device(("gpu", False, NVIDIA_CARD)), device(("rdma", True, {}))],
)
def test_without_healthy_cards_all_is_removed(without: Device | None) -> None:
    found = gpu_resources(without, sync_shared=False)

    assert found.removed == GPU_RESOURCES
    assert (found.amounts, found.labels) == ({}, {})


def test_labels_are_copied_where_there_are_any() -> None:
    labelled = device(*TWO_NVIDIA, gpu_vendor="nvidia", gpu_model="A100", gpu_driver_version="480")

    assert gpu_resources(labelled, False).labels == {VENDOR: "nvidia", MODEL: "A100", DRIVER: "480"}
    assert gpu_resources(device(*TWO_NVIDIA), False).labels == {}


def test_network_cards_have_a_hundred_shares_each() -> None:
    cards = device(("rdma", True, {}), ("rdma", True, {RDMA: "1"}), ("rdma", False, {}), ("gpu", True, {}))

    found = rdma_resources(cards)

    assert {name: str(amount) for name, amount in found.amounts.items()} == {RDMA: "200"}
    assert found.removed == ()


@pytest.mark.parametrize("without", [None, device(("rdma", False, {})), device(("gpu", True, {}))])
def test_without_network_cards_there_are_no_shares(without: Device | None) -> None:
    assert rdma_resources(without).removed == (RDMA,)
