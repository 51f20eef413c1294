"""What no recorded conversation has of Pod Security: checks of pods that kube-apiserver refuses or warns of for other
reasons first, and namespaces with very many pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from koordinator.api.document import Document
from koordinator.base.clock import ManualClock
from koordinator.cluster.admission.pod_security.plugin import PodSecurity
from koordinator.cluster.admission.pod_security.standards import findings
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Registry
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Attributes, Environment
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target

_PODS = next(each.prefix for each in BUILTIN_RESOURCES if each.plural == "pods")
PLAIN = {"name": "c", "image": "i"}


def _found(spec: dict[str, Any], minor: int = 35, /, **annotations: str) -> Sequence[tuple[str, str]]:
    keys = {key.replace("_", "/"): value for key, value in annotations.items()}
    return list(findings("baseline", minor, keys, {"containers": [PLAIN], **spec}))


def _context(**context: Any) -> dict[str, Any]:
    return {"containers": [{**PLAIN, "securityContext": context}]}


@pytest.mark.parametrize(
    ("spec", "reason", "detail"),
    [
        (_context(privileged=True), "privileged", 'container "c" must not set securityContext.privileged=true'),
        (
            {
                **_context(windowsOptions={"hostProcess": True}),
                "securityContext": {"windowsOptions": {"hostProcess": True}},
            },
            "hostProcess",
            'pod and container "c" must not set securityContext.windowsOptions.hostProcess=true',
        ),
    ],
)
def test_what_baseline_pods_may_not_do(spec: dict[str, Any], reason: str, detail: str) -> None:
    assert _found(spec) == [(reason, detail)]


def test_annotations_with_which_pods_once_chose_profiles() -> None:
    annotations = {"seccomp.security.alpha.kubernetes.io_pod": "unconfined"}
    assert _found({}, 18, **annotations) == [
        ("seccompProfile", 'forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined"')
    ]
    assert _found({}, 19, **annotations) == []


def test_an_annotation_with_an_app_armor_profile() -> None:
    found = _found({}, 35, **{"container.apparmor.security.beta.kubernetes.io_c": "unconfined"})
    key = 'container.apparmor.security.beta.kubernetes.io/c="unconfined"'
    assert found == [("forbidden AppArmor profile", f'annotation must not set AppArmor profile type to "{key}"')]


def test_a_version_that_is_to_come_is_the_newest_one() -> None:
    host = {"livenessProbe": {"httpGet": {"port": 80, "host": "h"}}}
    spec = {"containers": [{**PLAIN, **host}]}
    assert (len(_found(spec, 99)), len(_found(spec, 33))) == (1, 0)


def test_of_very_many_pods_no_more_are_decoded_than_are_checked() -> None:
    decoded = []

    def note(obj: Document) -> Document:
        decoded.append(obj["metadata"]["name"])
        return obj

    resources = [replace(each, from_stored=note) if each.plural == "pods" else each for each in BUILTIN_RESOURCES]
    names = [f"a{number:04}" for number in range(2000)] + [f"z{number:04}" for number in range(2000)]
    stored = [_stored_pod(name, "x" if name < "b" else name, revision) for revision, name in enumerate(names, start=1)]
    environment = Environment(MemoryStorage(objects=stored), Registry(resources), ManualClock(), Random(1))
    namespaces = environment.registry.stored["", "namespaces"]
    assert namespaces is not None
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    new, old = ({"metadata": {"name": "n", "labels": each}} for each in (labels, {}))
    warnings: list[str] = []
    attributes = Attributes(
        "UPDATE", Target(namespaces, None, "n"), new, old, environment.context(warnings), WriteOptions()
    )
    asyncio.run(PodSecurity().validate(attributes))
    assert decoded == ["a0000", *(name for name in names if name > "b"), *names[1:1000]]
    title = "new PodSecurity enforce level only checked against the first"
    assert warnings[0] == f"{title} 3000 of 4000 existing pods"


def _stored_pod(name: str, controller: str, revision: int) -> Stored:
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": controller, "controller": True}
    metadata = {"name": name, "uid": name, "ownerReferences": [owner]}
    document = {"metadata": metadata, "spec": {"containers": [PLAIN]}}
    return Stored(f"{_PODS}n/{name}", msgspec.json.encode(document), revision)
