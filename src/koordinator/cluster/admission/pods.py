"""Plugins of pods: what a new pod gets from its PriorityClass, its RuntimeClass, its node and its account, and the
tolerations that every pod has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.document import Document, copied, same
from koordinator.api.quantity import Quantity
from koordinator.base.clock import Clock
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.strategy.priority_class import SCHEDULING_GROUP, SYSTEM_PRIORITY_CLASSES
from koordinator.cluster.verbs.environment import Attributes, random_suffix

_PREEMPT: Final = "PreemptLowerPriority"
_CLASSES: Final = (SCHEDULING_GROUP, "priorityclasses")


class Priority(Plugin):
    """The class that a pod names becomes numbers, and there is one default class at most."""

    name = "Priority"
    resources = (("", "pods"), _CLASSES)
    operations = ("CREATE", "UPDATE")

    async def mutate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for an unknown class or a contradicting number."""
        pod, old = attributes.obj, attributes.old
        if attributes.target.resource.plural != "pods" or pod is None:
            return
        if old is None:
            _resolve(attributes, pod["spec"])
            return
        # These two are worked out on creation; a client that sends the object without them does not take them away.
        for name in ("priority", "preemptionPolicy"):
            if pod["spec"].get(name) is None and name in old["spec"]:
                pod["spec"][name] = old["spec"][name]

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for a second class that pods without one would get."""
        obj, target = attributes.obj, attributes.target
        if target.resource.plural == "pods" or obj is None or not obj.get("globalDefault"):
            return
        for other in attributes.context.list_objects(*_CLASSES):
            name = other["metadata"].get("name")
            if other.get("globalDefault") and name != obj["metadata"].get("name"):
                why = f"PriorityClass {name} is already marked as default. Only one default can exist"
                raise refused(attributes, why)


def _resolve(attributes: Attributes, spec: Document) -> None:
    name = spec.get("priorityClassName")
    found = _named_class(attributes, name) if name else _global_default(attributes.context)
    if found is not None and not name:
        spec["priorityClassName"] = found["metadata"]["name"]
    priority = (found or {}).get("value") or 0
    policy = (found or {}).get("preemptionPolicy") or _PREEMPT
    _refuse_other(attributes, "integer", "priority", spec.get("priority"), priority)
    _refuse_other(attributes, "string", "PreemptionPolicy", spec.get("preemptionPolicy"), policy)
    spec["priority"], spec["preemptionPolicy"] = priority, policy


def _named_class(attributes: Attributes, name: str) -> Document:
    found = attributes.context.lookup(*_CLASSES, None, name)
    if found is not None:
        return found
    if name in SYSTEM_PRIORITY_CLASSES:
        return {"metadata": {"name": name}, "value": SYSTEM_PRIORITY_CLASSES[name].value}
    raise refused(attributes, f"no PriorityClass with name {name} was found")


def _global_default(context: RequestContext) -> Document | None:
    # Two at once can only come from a race; the real server takes the lower one, too.
    classes = context.list_objects(*_CLASSES)
    return min((c for c in classes if c.get("globalDefault")), key=lambda c: c.get("value") or 0, default=None)


def _refuse_other(attributes: Attributes, kind: str, name: str, given: Any, computed: Any) -> None:
    if given is not None and given != computed:
        raise refused(
            attributes,
            f"the {kind} value of {name} ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name",
        )


_SECONDS: Final = 300
_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerationSeconds(Plugin):
    """A pod that says nothing of lost nodes stays on one for five minutes."""

    name = "DefaultTolerationSeconds"
    resources = (("", "pods"),)
    operations = ("CREATE", "UPDATE")

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        given = spec.get("tolerations") or []
        missing = [key for key in _LOST_NODE_TAINTS if not any(_covers(toleration, key) for toleration in given)]
        if missing:
            added = [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
                for key in missing
            ]
            spec["tolerations"] = [*given, *added]


def _covers(toleration: Document, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def merged(first: Sequence[Document], second: Sequence[Document]) -> list[Document]:
    """Both, without those that another one covers; of equal ones the first stays."""
    together = [*first, *second]
    kept: list[Document] = []
    for index, toleration in enumerate(together):
        later = (each for each in together[index + 1 :] if not same(each, toleration))
        if not any(_includes(each, toleration) for each in (*kept, *later)):
            kept.append(toleration)
    return kept


def _includes(wide: Document, narrow: Document) -> bool:
    """Whether ``wide`` tolerates all that ``narrow`` does, as Kubernetes decides it."""
    if same(wide, narrow):
        return True
    operator = wide.get("operator") or "Equal"
    key, effect = wide.get("key") or "", wide.get("effect") or ""
    if key != (narrow.get("key") or "") and (key or operator != "Exists"):
        return False
    if effect and effect != (narrow.get("effect") or ""):
        return False
    seconds, narrow_seconds = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if effect == "NoExecute" and seconds is not None and (narrow_seconds is None or narrow_seconds > seconds):
        return False
    if operator == "Equal":
        return narrow.get("operator") == "Equal" and (narrow.get("value") or "") == (wide.get("value") or "")
    return operator == "Exists"


_OTHER_OVERHEAD: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_OWN_OVERHEAD: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClass(Plugin):
    """A pod gets the overhead, the node selector and the tolerations of the class that it names."""

    name = "RuntimeClass"
    resources = (("", "pods"),)

    async def mutate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for a class that is not there, and for a pod that contradicts its class."""
        pod = attributes.obj
        assert pod is not None
        found = _class_of(attributes)
        if found is None:
            return
        if found.get("overhead") is not None:
            _set_overhead(attributes, pod["spec"], found["overhead"].get("podFixed") or {})
        if found.get("scheduling") is not None:
            _set_scheduling(attributes, pod["spec"], found["scheduling"])

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403 for an overhead that is not that of the class, which a webhook may have set."""
        assert attributes.obj is not None
        overhead = (_class_of(attributes) or {}).get("overhead")
        given = attributes.obj["spec"].get("overhead")
        if overhead is None and given is not None:
            raise refused(attributes, _OWN_OVERHEAD)
        if overhead is not None and not _same_amounts(overhead.get("podFixed") or {}, given or {}):
            raise refused(attributes, _OTHER_OVERHEAD)


def _class_of(attributes: Attributes) -> Document | None:
    """The class that the pod names; None where it names none. Raises ApiError 403."""
    name = (attributes.obj or {})["spec"].get("runtimeClassName")
    if name is None:
        return None
    found = attributes.context.lookup("node.k8s.io", "runtimeclasses", None, name)
    if found is None:
        raise refused(attributes, f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _set_overhead(attributes: Attributes, spec: Document, fixed: Document) -> None:
    if spec.get("overhead") and not _same_amounts(fixed, spec["overhead"]):
        raise refused(attributes, _OTHER_OVERHEAD)
    if fixed:
        spec["overhead"] = dict(fixed)


def _set_scheduling(attributes: Attributes, spec: Document, scheduling: Document) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            places = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] ="
            raise refused(attributes, f"conflict: {places} {selector[key]}")
        selector[key] = value
    if selector:
        spec["nodeSelector"] = selector
    tolerations = merged(spec.get("tolerations") or [], copied(scheduling.get("tolerations") or []))
    if tolerations:
        spec["tolerations"] = tolerations


def _same_amounts(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {name: Quantity.parse(text) for name, text in one.items()} == {
        name: Quantity.parse(text) for name, text in other.items()
    }


_COPIED: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels(Plugin):
    """A pod that gets a node is given the node's zone and region as labels."""

    name = "PodTopologyLabels"
    resources = (("", "pods"),)
    subresources = ("", "binding")

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        assert obj is not None
        if attributes.target.subresource == "binding":
            destination = obj.get("target") or {}
            name = destination.get("name") if destination.get("kind") == "Node" else ""
        else:
            name = obj["spec"].get("nodeName")
        node = attributes.context.lookup("", "nodes", None, name) if name else None
        labels = (node or {"metadata": {}})["metadata"].get("labels") or {}
        found = {key: labels[key] for key in _COPIED if key in labels}
        if found:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **found}


_DEFAULT: Final = "default"
_MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME_PREFIX: Final = "kube-api-access-"
_TOKEN_SECONDS: Final = 3607
"""An hour and a few seconds, by which Kubernetes knows the tokens that nobody has asked for."""
_ATTEMPTS: Final = 10
_FIRST_PAUSE: Final = 0.1
"""The least and half of the longest pause, in seconds, in which the account of a new namespace may come."""


class ServiceAccount(Plugin):
    """Every pod acts as an account, whose token its containers find in a volume. It runs where a controller gives every
    namespace its account ``default``; elsewhere, no pod could be created."""

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
