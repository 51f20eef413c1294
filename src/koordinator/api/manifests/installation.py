"""Everything that a real cluster is given: the files of an installation, by part and in an order that can be applied.

CustomResourceDefinitions and webhooks are made from the types; the rest are templates beside this module, in which each
``${…}`` stands for one whole value. ``config/`` is written from here with the defaults, `koord manifests` prints
them with the options of its command line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

import koordinator
from koordinator.api.installation import NAMESPACE
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.webhooks import until_served, webhook_configurations, webhook_service
from koordinator.api.manifests.yaml_text import generated_text, scalar_text

PROGRAM: Final = "{program}"
"""In an image: the name of the program that a pod runs."""
_IMAGES: Final = {"koord-page": "koordinator"}
"""Of what is no program of its own, but a command of koord: it is in the image that has everything."""
KUSTOMIZATION: Final = "kustomization.yaml"
_PLACEHOLDER: Final = re.compile(r"\$\{(\w+)\}")
_TEMPLATES: Final = {
    "namespace": ("namespace.yaml",),
    "priority-classes": ("priority-classes.yaml",),
    "rbac": (
        "rbac/koord-descheduler.yaml",
        "rbac/koord-explain.yaml",
        "rbac/koord-manager.yaml",
        "rbac/koord-scheduler.yaml",
        "rbac/koordlet.yaml",
        "rbac/secure-ports.yaml",
    ),
    "recommender": ("rbac/koord-manager-recommender.yaml",),
    "feature-gates": ("rbac/koord-manager-feature-gates.yaml",),
    "koordlet-confinement": ("rbac/koordlet-confinement.yaml",),
    "dashboard": ("rbac/koord-page.yaml", "deployments/koord-page.yaml"),
    "config-maps": (
        "config-maps/gpu-shared-resource-templates.yaml",
        "config-maps/koord-descheduler-config.yaml",
        "config-maps/koord-scheduler-config.yaml",
        "config-maps/slo-controller-config.yaml",
    ),
    "scheduler": ("deployments/koord-scheduler.yaml",),
    "manager": ("deployments/koord-manager.yaml",),
    "descheduler": ("deployments/koord-descheduler.yaml",),
    "koordlet": ("daemon-sets/koordlet.yaml",),
    "device-daemon": ("daemon-sets/koord-device-daemon.yaml",),
}
PARTS: Final = (
    "namespace",
    "crd",
    "priority-classes",
    "rbac",
    "config-maps",
    "webhook",
    "scheduler",
    "manager",
    "descheduler",
    "koordlet",
    "device-daemon",
)
"""In the order in which they are applied: what something needs comes before it."""
OPTIONAL_PARTS: Final = ("recommender", "feature-gates", "koordlet-confinement", "dashboard")
"""These are only written when they are named, and can be applied after the others."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What differs between clusters."""

    namespace: str = NAMESPACE
    """Of the programs, their Leases and their ConfigMaps."""
    image: str = f"{PROGRAM}:{koordinator.__version__}"
    """Of the programs; ``{program}`` in it stands for the name of each. The default has the names that `make images`
    gives; there are no published ones."""
    replicas: int = 2
    """Of each program with a Deployment; one of them leads."""
    failure_policy: str = "Ignore"
    """Of the webhooks of pods and quotas: while koord-manager is not there, Ignore lets these in, Fail refuses them."""


def manifest_files(installation: Installation, parts: Collection[str] = PARTS) -> dict[str, str]:
    """Path -> YAML text of the named parts, in the order in which they are applied."""
    files: dict[str, str] = {}
    for part in (*PARTS, *OPTIONAL_PARTS):
        if part in parts:
            files |= _files_of(part, installation)
    return files


def kustomization(paths: Collection[str]) -> str:
    """The file that makes a folder of ``paths`` fit for ``kubectl apply -k``."""
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(paths),
    }
    return generated_text(document)


def deletion_order(files: dict[str, str]) -> dict[str, str]:
    """The same files in the order in which ``kubectl delete`` takes them: webhooks first, since a webhook that is no
    longer served may refuse what follows, then from the programs back to the namespace."""
    webhooks = [path for path in files if path.startswith("webhook/")]
    others = [path for path in reversed(files) if path not in webhooks]
    return {path: files[path] for path in (*webhooks, *others)}


def _files_of(part: str, installation: Installation) -> dict[str, str]:
    if part == "crd":
        return {
            f"crd/{definition['spec']['group']}_{definition['spec']['names']['plural']}.yaml": generated_text(
                definition
            )
            for definition in custom_resource_definitions()
        }
    if part == "webhook":
        configurations = webhook_configurations(installation.namespace, installation.failure_policy)
        service = webhook_service(installation.namespace)
        return {"webhook/manifests.yaml": generated_text(service, *map(until_served, configurations))}
    return {path: _filled(path, installation) for path in _TEMPLATES[part]}


def _filled(path: str, installation: Installation) -> str:
    template = (resources.files(__package__) / "templates" / path).read_text("utf-8")
    # A file with pods has the name of their program.
    name = PurePosixPath(path).stem
    values = asdict(installation) | {"image": installation.image.replace(PROGRAM, _IMAGES.get(name, name))}
    return _PLACEHOLDER.sub(lambda found: scalar_text(values[found[1]]), template)
