"""RDMADeviceInject: the RDMA cards, or virtual functions, that a pod was given appear in its containers.

Devices reach a container through NRI alone (pkg/koordlet/runtimehooks/hooks/rdma).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.device_share import AllocatedDevice
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext
from koordinator.koordlet.enforce.hooks.gpu_environment import allocated_devices
from koordinator.koordlet.enforce.hooks.registry import Hook, Stage
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.node.errors import FileError
from koordinator.node.rdma import DEVICE_FOLDER, DeviceFile

OWNER: Final = "rdma device inject"
_CONNECTION_MANAGER: Final = f"{DEVICE_FOLDER}/rdma_cm"


class RDMADeviceInject:
    """``of_address`` finds the device file of a PCI address, ``of_path`` one by its path; both raise FileError."""

    def __init__(self, of_address: Callable[[str], DeviceFile], of_path: Callable[[str], DeviceFile]) -> None:
        self._of_address = of_address
        self._of_path = of_path

    @property
    def hook(self) -> Hook:
        stages = frozenset({Stage.PRE_CREATE_CONTAINER})
        return Hook(OWNER, features.RDMA_DEVICE_INJECT, stages, is_reconciled=False, container=self.container)

    def container(self, pod: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
        """The devices of a container that is about to start. HookError if one of them is not on this node."""
        allocated = allocated_devices(pod, "rdma")
        if not allocated:
            return None
        try:
            devices = [self._of_path(_CONNECTION_MANAGER)]
            devices += [self._of_address(address) for device in allocated for address in _addresses(device)]
        except FileError as error:
            raise HookError(f"an RDMA device of {pod.key} is not to be had: {error}") from error
        return Change(f"the pod's annotation {annotation_keys.DEVICE_ALLOCATED}", Priority.POD, devices=tuple(devices))


def _addresses(device: AllocatedDevice) -> list[str]:
    """Its virtual functions, else the card itself."""
    functions = device.extension.virtual_functions if device.extension is not None else []
    return [function.bus_id for function in functions] or [device.id]
