"""The images: which program each has, what of the package and of the locked requirements it needs, and its user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Image:
    """What one image has. Its name is that of the program which it starts."""

    requirements: str
    """A file of requirements/ without its suffix: images with the same one share the layer with what it installs."""
    packages: tuple[str, ...] | None = None
    """The subpackages of koordinator that the program imports; None for all of them."""
    commands: tuple[str, ...] = ()
    """Which commands are in the image beside its own."""


_OF_A_NODE: Final = ("api", "base", "kube", "model", "node")
_OF_A_CLUSTER: Final = ("api", "base", "kube", "model")

IMAGES: Final = {
    "koord-scheduler": Image("scheduler", (*_OF_A_CLUSTER, "scheduler")),
    "koord-descheduler": Image("scheduler", (*_OF_A_CLUSTER, "descheduler")),
    "koord-manager": Image("manager", (*_OF_A_CLUSTER, "manager")),
    "koordlet": Image("node", (*_OF_A_NODE, "koordlet")),
    "koord-device-daemon": Image("node", (*_OF_A_NODE, "device_daemon")),
    "koord-runtime-proxy": Image("node", (*_OF_A_NODE, "runtime_proxy")),
    "koordinator": Image(
        "runtime",
        commands=(
            "koord",
            "kubectl-koord",
            "kubectl_complete-koord",
            "koord-scheduler",
            "koord-descheduler",
            "koord-manager",
            "koordlet",
            "koord-device-daemon",
            "koord-runtime-proxy",
        ),
    ),
}
"""`koordinator` has all programs and the command koord."""

REQUIREMENTS: Final = tuple(dict.fromkeys(image.requirements for image in IMAGES.values()))
"""Each once."""


def commands_of(name: str) -> tuple[str, ...]:
    """The commands in an image."""
    return IMAGES[name].commands or (name,)
