"""The plugin: refuses pods that violate what their namespace enforces, and warns of templates of such pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from koordinator.api.document import Document
from koordinator.api.meta import controller_of
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.admission.pod_security.policy import Policy, Standard, policy_of
from koordinator.cluster.admission.pod_security.standards import PRIVILEGED, Finding
from koordinator.cluster.errors import invalid
from koordinator.cluster.verbs.environment import Attributes, Environment, GroupResource, Operation
from koordinator.cluster.verbs.target import StoredObjects

_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")
_TEMPLATES: Final = {
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    **{
        ("apps", plural): ("spec", "template")
        for plural in ("replicasets", "deployments", "statefulsets", "daemonsets")
    },
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
"""Where kinds have the template of their pods."""
_MOST_PODS: Final = 3000
"""So many pods of a namespace are checked against a new policy."""
Lookup = Callable[[str, str, str | None, str], Document | None]
"""(group, plural, namespace, name) -> object."""
_AT_ONCE: Final = 100
"""Pods that are checked before other requests get their turn."""
_READ_AT_ONCE: Final = 1000
"""The same for pods of which nothing but the metadata is read."""


class PodSecurity(Plugin):
    name = "PodSecurity"
    resources = (_NAMESPACES, _PODS, *_TEMPLATES)
    operations = ("CREATE", "UPDATE")
    subresources = ("", "ephemeralcontainers", "resize")
    idle_by = (_NAMESPACES,)

    def concerns(self, resource: GroupResource, subresource: str, operation: Operation) -> bool:
        return super().concerns(resource, subresource, operation) and (resource == _PODS or not subresource)

    def is_idle(self, operation: Operation, namespace: str | None, objects: Environment) -> bool:
        if namespace is None:
            return False
        policy = _policy(objects.lookup, namespace)
        return policy.enforce.level == policy.warn.level == PRIVILEGED

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError: 403 for a pod that violates the standard, 422 for labels of a namespace that are none."""
        resource = attributes.target.resource
        kind, obj = (resource.group, resource.plural), attributes.obj
        assert obj is not None
        if kind == _NAMESPACES:
            await _check_namespace(attributes, obj)
            return
        policy = _policy(attributes.context.lookup, attributes.target.namespace or "")
        if kind != _PODS:
            _warn_of_template(attributes, policy, obj, _TEMPLATES[kind])
        elif policy.enforce.level != PRIVILEGED or policy.warn.level != PRIVILEGED:
            _check_pod(attributes, policy, obj)


def _policy(lookup: Lookup, namespace: str) -> Policy:
    found = lookup(*_NAMESPACES, None, namespace)
    return policy_of((found or {"metadata": {}})["metadata"].get("labels") or {})[0]


def _warn(attributes: Attributes, text: str) -> None:
    if text not in attributes.context.warnings:
        attributes.context.warnings.append(text)


def _detail(found: Iterable[Finding]) -> str:
    return ", ".join(f"{each.reason} ({each.detail})" for each in found)


def _annotations(obj: Document) -> Document:
    annotations: Document = (obj.get("metadata") or {}).get("annotations") or {}
    return annotations


# Pods and templates.


def _check_pod(attributes: Attributes, policy: Policy, pod: Document) -> None:
    if attributes.old is not None and not _is_significant(pod["spec"], attributes.old["spec"]):
        return
    annotations, spec = _annotations(pod), pod["spec"]
    if found := policy.enforce.findings(annotations, spec):
        raise refused(attributes, f'violates PodSecurity "{policy.enforce}": {_detail(found)}')
    _warn_of(attributes, policy.warn, annotations, spec)


def _warn_of(attributes: Attributes, standard: Standard, annotations: Document, spec: Document) -> None:
    if found := standard.findings(annotations, spec):
        _warn(attributes, f'would violate PodSecurity "{standard}": {_detail(found)}')


def _is_significant(spec: Document, old: Document) -> bool:
    """Whether an update changes what a standard looks at: only images may change, and ephemeral containers come."""
    groups = ("containers", "initContainers")
    images = [
        [container.get("image") for group in groups for container in each.get(group) or ()] for each in (spec, old)
    ]
    known = {container["name"]: container.get("image") for container in old.get("ephemeralContainers") or ()}
    joined = ((each["name"], each.get("image")) for each in spec.get("ephemeralContainers") or ())
    return images[0] != images[1] or any(name not in known or known[name] != image for name, image in joined)


def _warn_of_template(attributes: Attributes, policy: Policy, obj: Document, path: Sequence[str]) -> None:
    if policy.warn.level == PRIVILEGED:
        return
    template = obj
    for step in path:
        template = template.get(step) or {}
    if template.get("spec"):
        _warn_of(attributes, policy.warn, _annotations(template), template["spec"])


# Namespaces.


async def _check_namespace(attributes: Attributes, namespace: Document) -> None:
    policy, causes = policy_of(namespace["metadata"].get("labels") or {})
    before, known = policy_of((attributes.old or {"metadata": {}})["metadata"].get("labels") or {})
    if causes and causes != known:
        raise invalid(attributes.target.resource, attributes.target.name, causes)
    enforce, earlier = policy.enforce, before.enforce
    relaxed = enforce.version == earlier.version and enforce.rank <= earlier.rank
    if attributes.old is None or enforce == earlier or enforce.level == PRIVILEGED or relaxed:
        return
    for text in await _violations(attributes, namespace["metadata"]["name"], enforce):
        _warn(attributes, text)


async def _violations(attributes: Attributes, namespace: str, standard: Standard) -> list[str]:
    """What pods that are there already violate, each reason with the first of its pods."""
    pods = attributes.context.list_objects("", "pods", namespace)
    violators: dict[str, list[str]] = {}
    for count, place in enumerate((await _most_telling(pods))[:_MOST_PODS], start=1):
        pod = pods[place]
        if found := standard.findings(_annotations(pod), pod["spec"]):
            violators.setdefault(", ".join(each.reason for each in found), []).append(pod["metadata"]["name"])
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    texts = []
    if len(pods) > _MOST_PODS:
        title = "new PodSecurity enforce level only checked against the first"
        texts.append(f"{title} {_MOST_PODS} of {len(pods)} existing pods")
    if violators:
        title = f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level'
        texts.append(f'{title} "{standard}"')
    return texts + sorted(f"{_pods(names)}: {reason}" for reason, names in violators.items())


def _pods(names: Sequence[str]) -> str:
    others = len(names) - 1
    return f"{min(names)} (and {others} other pod{'s' * (others > 1)})" if others else names[0]


async def _most_telling(pods: StoredObjects) -> list[int]:
    """The places of one pod of each controller first: the others are made of the same template."""
    first: dict[str, int] = {}
    others = []
    for place, metadata in enumerate(pods.metadata()):
        owner = controller_of(metadata)
        if first.setdefault(metadata.uid if owner is None else owner.uid, place) != place:
            others.append(place)
        if place % _READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    return [*first.values(), *others]
