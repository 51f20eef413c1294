"""The feature gates that change how devices are allocated. They stand apart for the command line, which loads no
plugin."""

from __future__ import annotations

from typing import Final

RESIZE_POD: Final = "ResizePod"
"""A Reservation holds what it was allocated of devices, not what its template requests."""
DEVICE_PLUGIN_ADAPTION: Final = "DevicePluginAdaption"
"""Pods and nodes are annotated for the device plugins of some vendors."""
GATES: Final = (RESIZE_POD, DEVICE_PLUGIN_ADAPTION)
