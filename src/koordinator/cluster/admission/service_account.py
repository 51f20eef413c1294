"""ServiceAccount: every pod acts as an account, whose token its containers find in a volume.

It runs where a controller gives every namespace its account ``default``; elsewhere, no pod could be created.
"""

from __future__ import annotations

from random import Random
from typing import Final

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.verbs.environment import Attributes, random_suffix

_DEFAULT: Final = "default"
_MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME_PREFIX: Final = "kube-api-access-"
_TOKEN_SECONDS: Final = 3607
"""An hour and a few seconds, by which Kubernetes knows the tokens that nobody has asked for."""
_ATTEMPTS: Final = 10
_FIRST_PAUSE: Final = 0.1
"""The least and half of the longest pause, in seconds, in which the account of a new namespace may come."""


class ServiceAccount(Plugin):
    name = "ServiceAccount"
    resources = (("", "pods"),)

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random

    async def mutate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for a pod whose account does not exist."""
        pod = attributes.obj
        assert pod is not None
        if CONFIG_MIRROR in (pod["metadata"].get("annotations") or {}):
            return
        spec = pod["spec"]
        name = spec.get("serviceAccountName") or _DEFAULT
        account = await self._account(attributes, name)
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if _mounts_token(spec, account):
            self._mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(each) for each in account["imagePullSecrets"]]

    async def _account(self, attributes: Attributes, name: str) -> Document:
        """That of a namespace that was just made is waited for."""
        target = attributes.target
        for attempt in range(_ATTEMPTS):
            account = attributes.context.lookup("", "serviceaccounts", target.namespace, name)
            if account is not None:
                return account
            if name != _DEFAULT or attempt == _ATTEMPTS - 1:
                break
            await self._clock.sleep(_FIRST_PAUSE * (1 + self._random.random()))
        key = f"{target.namespace}/{name}"
        why = f'error looking up service account {key}: serviceaccount "{name}" not found'
        raise refused(attributes, why)

    def _mount_token(self, spec: Document) -> None:
        """Into each container that has nothing at that path. A volume of an earlier pass is used again."""
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        without = [each for each in containers if not _has_mount(each)]
        if not without:
            return
        names = (volume.get("name") or "" for volume in spec.get("volumes") or ())
        volume_name = next((name for name in names if name.startswith(_VOLUME_PREFIX)), "")
        if not volume_name:
            volume_name = _VOLUME_PREFIX + random_suffix(self._random)
            spec["volumes"] = [*(spec.get("volumes") or ()), _token_volume(volume_name)]
        for container in without:
            mount = {"name": volume_name, "readOnly": True, "mountPath": _MOUNT_PATH}
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _mounts_token(spec: Document, account: Document) -> bool:
    """The pod decides, then its account; without a word from either, it is mounted."""
    for each in (spec, account):
        if each.get("automountServiceAccountToken") is not None:
            return bool(each["automountServiceAccountToken"])
    return True


def _has_mount(container: Document) -> bool:
    return any(mount.get("mountPath") == _MOUNT_PATH for mount in container.get("volumeMounts") or ())


def _token_volume(name: str) -> Document:
    certificate = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": certificate},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}
