"""The file that lists accelerators for koordlet that it cannot find itself: a JSON array of devices.

koord-device-daemon writes one, and agents of vendors may put theirs beside it. Names and order are those of the Go
original's ``XPUDeviceInfo``, so that either side may be the original's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordinator.api.codec import decode


class P2PLink(msgspec.Struct, frozen=True, rename="camel"):
    """A fast link between this device and others."""

    peer_minor: str = ""
    """Their minor numbers, separated by commas."""
    type: str = ""
    """The technique, such as ``HCCS``."""


class XPUTopology(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where in the machine a device is."""

    p2p_links: tuple[P2PLink, ...] = msgspec.field(default=(), name="p2pLinks")
    must_honor_partition: bool = msgspec.field(default=False, name="mustHonorPartition")
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")
    """The NUMA node; ``-1`` when it is not known."""
    pcie_id: str = msgspec.field(default="", name="pcieID")
    """The PCIe root, such as ``pci0000:80``."""
    bus_id: str = msgspec.field(default="", name="busID")
    """The PCI address, such as ``0000:c1:00.0``."""


class XPUStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a device works."""

    healthy: bool
    error_code: str = msgspec.field(default="", name="errCode")
    """Becomes the reason of a condition, which has to be one word."""
    error_message: str = msgspec.field(default="", name="errMessage")


class XPUDeviceInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device."""

    vendor: str
    model: str
    uuid: str
    """Unique on the node."""
    minor: str
    """A decimal number."""
    resources: dict[str, str] = {}
    """Resource name -> quantity, in total."""
    topology: XPUTopology | None = None
    status: XPUStatus | None = None


_HTML = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def encode_devices(devices: Sequence[XPUDeviceInfo]) -> bytes:
    """The content of the file, to the byte as the Go original writes it: indented, resources sorted by name."""
    ordered = [msgspec.structs.replace(device, resources=dict(sorted(device.resources.items()))) for device in devices]
    text = msgspec.json.format(msgspec.json.encode(ordered), indent=2).decode()
    return text.translate(_HTML).encode()


def decode_devices(content: bytes) -> list[XPUDeviceInfo]:
    """Raises DecodeError, whose text names the field, for what is not such a file."""
    return decode(content, list[XPUDeviceInfo])
