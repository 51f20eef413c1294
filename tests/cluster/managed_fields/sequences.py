"""Random writes of several managers to one object, for two API servers that shall end up with the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from koordinator.api.document import Document

GROUP: Final = "apply.example.com"
NAMESPACE: Final = "applied"
_MANAGERS: Final = ("one", "two", "three")
_NAMES: Final = ("a", "b", "c")
_STRING: Final = {"type": "string"}
_SPEC: Final[Document] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "quantity": {"x-kubernetes-int-or-string": True},
        "plain": {"type": "array", "items": _STRING},
        "set": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
        "map": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": _STRING,
                    "port": {"type": "integer", "default": 80},
                    "value": _STRING,
                    "inner": {"type": "object", "additionalProperties": _STRING},
                },
            },
        },
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": _STRING},
        "granular": {"type": "object", "additionalProperties": _STRING},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION: Final[Document] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"gadgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [
            {
                "name": name,
                "served": True,
                "storage": name == "v1",
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _SPEC, "status": {"type": "object", "additionalProperties": _STRING}},
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
                },
            }
            for name in ("v1", "v2")
        ],
    },
}


@dataclass(frozen=True)
class Write:
    """One request; ``path`` is below the collection of the kind."""

    media: str
    path: str
    body: Any

    @property
    def method(self) -> str:
        return "PATCH" if self.media else "PUT"

    def __str__(self) -> str:
        return f"{self.media.partition('/')[2] or 'put'} {self.path} {self.body}"


class Gadgets:
    """Custom resources of two versions, with every kind of list and map that a schema can declare."""

    kind: Final = "Gadget"
    versions: Final = (f"{GROUP}/v1", f"{GROUP}/v2")
    plural: Final = "gadgets"
    subresources: Final = ("status", "scale")

    def body(self, random: Random) -> Document:
        return {"spec": _some(random, self._spec(random))}

    def _spec(self, random: Random) -> Document:
        texts = _texts(random)
        items = [
            {
                "name": name,
                **_some(random, {"port": random.choice((80, 81)), "value": random.choice("xy"), "inner": texts}),
            }
            for name in random.sample(_NAMES, random.randint(0, 3))
        ]
        return {
            "size": random.randint(1, 3),
            "quantity": random.choice((1, "1", "5%")),
            "plain": random.sample(_NAMES, random.randint(0, 2)),
            "set": random.sample(_NAMES, random.randint(0, 3)),
            "map": items,
            "atomic": _texts(random),
            "granular": _texts(random),
            "free": {name: _anything(random, 1) for name in random.sample(_NAMES, random.randint(0, 2))},
            "any": random.choice((_anything(random, 2), [1, {"a": "b"}], "text", 5, None)),
        }

    def status(self, random: Random) -> Document:
        return {"status": _texts(random)}


class Deployments:
    """A built-in kind, with defaults, lists by key and a type that is owned as a whole."""

    kind: Final = "Deployment"
    versions: Final = ("apps/v1",)
    plural: Final = "deployments"
    subresources: Final = ("status", "scale")

    def body(self, random: Random) -> Document:
        containers = [self._container(name, random) for name in random.sample(_NAMES, random.randint(1, 3))]
        pod = {
            "containers": containers,
            **_some(random, {"nodeSelector": _texts(random), "priority": 0, "hostPID": True}),
        }
        spec = {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x", **_texts(random)}}, "spec": pod},
        }
        return {"spec": {**spec, **_some(random, {"replicas": random.randint(0, 2), "paused": True})}}

    def _container(self, name: str, random: Random) -> Document:
        ports = [{"containerPort": port} for port in random.sample((80, 81), random.randint(0, 2))]
        env = [{"name": each, "value": random.choice("xy")} for each in random.sample(_NAMES, random.randint(0, 2))]
        cpu = {"requests": {"cpu": random.choice(("1", "1000m", "2"))}}
        return {
            "name": name,
            "image": random.choice("ij"),
            **_some(random, {"ports": ports, "env": env, "resources": cpu}),
        }

    def status(self, random: Random) -> Document:
        conditions = [{"type": name, "status": random.choice(("True", "False"))} for name in random.sample(_NAMES, 2)]
        return {"status": {"conditions": conditions}}


Kind = Gadgets | Deployments


def writes(kind: Kind, random: Random, number: int) -> Iterator[Write]:
    """The first creates the object ``x``."""
    for step in range(number):
        manager = random.choice(_MANAGERS)
        version = random.choice(kind.versions)
        query = f"?fieldManager={manager}"
        named = {"apiVersion": version, "kind": kind.kind}
        metadata = {"name": "x", **_some(random, {"labels": _texts(random), "finalizers": ["a.b/c"]})}
        chosen = random.random()
        if step == 0 or chosen < 0.5:
            force = "&force=true" if random.random() < 0.5 else ""
            body = {**named, "metadata": metadata, **kind.body(random)}
            yield Write("application/apply-patch+yaml", f"{version} x{query}{force}", body)
        elif chosen < 0.6:
            body = {**named, "metadata": {"name": "x"}, **kind.status(random)}
            yield Write("application/apply-patch+yaml", f"{version} x/status{query}&force=true", body)
        elif chosen < 0.7:
            yield Write(
                "application/merge-patch+json",
                f"{version} x/scale{query}",
                {"spec": {"replicas": random.randint(1, 3)}},
            )
        elif chosen < 0.8:
            yield Write("application/merge-patch+json", f"{version} x/status{query}", kind.status(random))
        elif chosen < 0.9:
            yield Write(
                "application/merge-patch+json", f"{version} x{query}", {"metadata": metadata, **kind.body(random)}
            )
        else:
            yield Write("", f"{version} x{query}", {**named, "metadata": {"name": "x"}, **kind.body(random)})


def _some(random: Random, values: Document) -> Document:
    return {name: value for name, value in values.items() if random.random() < 0.5}


def _texts(random: Random) -> dict[str, str]:
    return {name: random.choice("xy") for name in random.sample(_NAMES, random.randint(0, 2))}


def _anything(random: Random, depth: int) -> Any:
    if not depth or random.random() < 0.3:
        return random.choice((1, "1", True, None, [1], {}))
    return {name: _anything(random, depth - 1) for name in random.sample(_NAMES, random.randint(1, 2))}


def comparable(body: Any) -> Any:
    """A response without what is a server's own; managers in the order of their names, since times differ."""
    if isinstance(body, dict):
        if body.get("kind") == "Status":
            return _refusal(body)
        found = {name: comparable(value) for name, value in body.items() if name not in _OWN}
        if isinstance(found.get("managedFields"), list):
            found["managedFields"].sort(key=_manager)
        if "time" in found and "fieldsType" in found:
            found["time"] = "TIME"
        return found
    return [comparable(item) for item in body] if isinstance(body, list) else body


_OWN: Final = ("uid", "resourceVersion", "creationTimestamp")


def _refusal(body: Document) -> Document:
    """The real server walks its managers in a random order."""
    details = body.get("details") or {}
    causes = sorted({f"{each.get('field')}: {each.get('message')}" for each in details.get("causes") or ()})
    return {"code": body.get("code"), "reason": body.get("reason"), "causes": causes or body.get("message")}


def _manager(entry: Document) -> Sequence[str]:
    return [str(entry.get(name)) for name in ("operation", "manager", "apiVersion", "subresource")]
