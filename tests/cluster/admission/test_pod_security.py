"""The checks of the Pod Security Standards that no recorded conversation has, since kube-apiserver refuses or warns of
such pods for other reasons first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from koordinator.cluster.admission.pod_security.standards import findings

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
