"""What every cluster has before its first client comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.node import LEASE_NAMESPACE
from koordinator.cluster.errors import ApiError
from koordinator.cluster.strategy.priority_class import SYSTEM_PRIORITY_CLASSES
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import API_SERVER, WriteOptions
from koordinator.cluster.verbs.target import Target

_NAMESPACES: Final = ("default", "kube-system", "kube-public", LEASE_NAMESPACE)


async def create_system_objects(environment: Environment) -> None:
    """Creates those that are missing."""
    for group, plural, namespace, obj in _objects():
        resource = environment.registry.stored[group, plural]
        assert resource is not None
        target = Target(resource, namespace, obj["metadata"]["name"])
        if environment.storage.get(target.key) is None:
            try:
                await create(environment, target, obj, WriteOptions(user_agent=API_SERVER))
            except ApiError as error:
                error.add_note(f"while creating {plural} {target.name}")
                raise


def _objects() -> Iterable[tuple[str, str, str | None, Document]]:
    for name in _NAMESPACES:
        yield "", "namespaces", None, _named(name)
    # Programs with delegated authentication do not start without it. Their own clients show them tokens.
    yield "", "configmaps", "kube-system", _named("extension-apiserver-authentication", namespace="kube-system")
    for name, given in SYSTEM_PRIORITY_CLASSES.items():
        body = {**_named(name), "value": given.value, "description": given.description}
        yield "scheduling.k8s.io", "priorityclasses", None, body


def _named(name: str, **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}}
