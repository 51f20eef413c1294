"""Other names for what a bundle names: an object has the same one wherever it stands, and nobody can tell which it was.

Names are learned from objects, before anything is written; in texts, such as logs, whatever looks like one of them is
replaced. Our own programs, the namespaces that every cluster has and the words of Kubernetes stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final

_WORD: Final = re.compile(r"[A-Za-z0-9](?:[\w.:/@-]*[A-Za-z0-9])?")
_BREAKS: Final = re.compile(r"[._:/@-]")
"""Where parts of a word end: of a name, a context, a URL, a reference to an image."""
_WITHIN_NAMES: Final = frozenset(".-")
_TOKEN: Final = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_ADDRESS: Final = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.])")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:.]{3,46}(?![\w:])")
_IMAGE: Final = re.compile(
    r"(?<![\w./@-])(?:[a-z0-9-]{1,63}\.){1,9}[a-z0-9-]{1,63}(?::[0-9]{1,5})?(?:/[\w.-]{1,128}){1,9}"
    r"(?::[\w.-]{1,128}(?:@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})(?![\w/@])"
)
"""With its registry, and a tag or a digest."""
_TAINT: Final = re.compile(r"(taints? \{)([^{}:=\s]{1,316})((?:: ?|=)?)([^{}:\s]{0,63})")
_KEPT: Final = frozenset(
    {"default", "kube-system", "kube-public", "kube-node-lease", "kubernetes", "koordinator", "koord"}
    | {"localhost", "127.0.0.1", "::1"}
)
_OF_EVERYBODY: Final = re.compile(r"(?:system|koord)-")
"""PriorityClasses."""
_PUBLIC_REGISTRIES: Final = frozenset({"docker.io", "ghcr.io", "quay.io", "gcr.io", "registry.k8s.io"})
_FIELDS: Final = frozenset(
    {
        *("address", "advice", "addresses", "allocatable", "annotations", "args", "attempts", "available", "batch"),
        *(
            "capacity",
            "children",
            "cluster",
            "command",
            "conditions",
            "containers",
            "context",
            "cpu",
            "data",
            "default",
        ),
        *("device", "devices", "effect", "events", "free", "gang", "gangs", "gpu", "group", "groups", "health", "host"),
        *("image", "items", "key", "kind", "labels", "lease", "level", "limits", "logs", "machine", "manager", "max"),
        *("memory", "message", "metadata", "metrics", "mid", "min", "mode", "name", "namespace", "namespaces", "node"),
        *("nodes", "note", "object", "operator", "owner", "owners", "parent", "path", "phase", "plugin", "plugins"),
        *("pod", "pods", "policy", "port", "ports", "priority", "prod", "profile", "profiles", "program", "programs"),
        *("quota", "quotas", "queue", "reason", "reasons", "request", "requests", "reservation", "reservations"),
        *("resources", "result", "rules", "scheduler", "score", "scores", "server", "spec", "state", "status"),
        *("strategy", "system", "tables", "taints", "template", "time", "tolerations", "total", "type", "used"),
        *("usage", "value", "values", "verbs", "version", "versions", "why", "zones"),
    }
)
"""Words that are fields of documents: as keys they stay, even where an object is called so."""
_KNOWN_DOMAINS: Final = re.compile(r"(?:[\w.-]+\.)?(?:koordinator\.sh|k8s\.io|kubernetes\.io)/|metadata\.")
_LABELS: Final = frozenset({"labels", "matchLabels", "annotations", "nodeSelector"})
_NAMING: Final = re.compile(r"(?:/|-)(?:name|parent|hostname)$")
"""Labels and annotations whose values are names: of quotas, gangs, applications and nodes."""
_DROPPED: Final = frozenset(
    {
        *("machineID", "systemUUID", "bootID", "providerID", "imageID", "containerID", "uid"),
        *("generateName", "reportingInstance", "hostname", "subdomain", "fullPodName"),
        *("volumes", "volumeMounts", "volumeDevices", "volumesInUse", "volumesAttached", "imagePullSecrets"),
        *("serviceAccountName", "serviceAccount", "env", "envFrom"),
    }
)
"""What identifies a machine or an object as well as its name does, or names what is not gathered."""
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_SELECTING: Final = frozenset({"operator", "effect"})
"""What stands beside the key of a label in tolerations, taints and selectors."""
_LONGEST: Final = 512
"""Characters of a name: a reference to an image may have a registry, a path, a tag and a digest."""
_MOST_REMEMBERED: Final = 1 << 16
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_ADDRESSES: Final = frozenset({"podIP", "hostIP", "ip", "address", "clusterIP"})


class Names:
    """``kept`` are names that stay: those of the installation."""

    def __init__(self, kept: Collection[str] = ()) -> None:
        self._aliases: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        """Of containers, whose names are often words: they are never looked for within others."""
        self._labels: dict[str, str] = {}
        """Keys and values of labels, of which many are words, too: replaced where labels are selected alone."""
        self._phrases: dict[str, str] = {}
        self._phrase: re.Pattern[str] | None = None
        """What is no word, such as the name of a context with a space in it."""
        self._numbers: Counter[str] = Counter()
        self._replaced: dict[str, str] = {}
        """What has become of a word: most of a log are the same few."""
        self._installation = frozenset(kept)
        self._kept = {*_KEPT, *kept}
        self._longest = max(map(len, self._kept))
        self.unknown = ""
        """Why not all names of pods, nodes and namespaces are known, so that what may have one cannot be written."""

    def learn(self, kind: str, name: str) -> None:
        """``name`` is from now on ``kind-N``, unless it has another one or stays."""
        if name and name not in self._kept and name not in self._aliases:
            self._aliases[name] = self._numbered(kind)
            self._looked_for(name)

    def learn_text(self, kind: str, text: str) -> None:
        """Something that is no name of an object, such as that of a context: its case may differ."""
        if not text or not self._kept.isdisjoint((text, text.lower())):
            return
        if _WORD.fullmatch(text):
            self.learn(kind, text)
            self._aliases.setdefault(text.lower(), self._aliases[text])
            self._looked_for(text)
        elif text not in self._phrases:
            self._phrases[text] = self._numbered(kind)
            longest_first = sorted(self._phrases, key=len, reverse=True)
            self._phrase = re.compile("|".join(map(re.escape, longest_first)))
            self._replaced.clear()

    def _looked_for(self, name: str) -> None:
        self._longest = min(max(self._longest, len(name)), _LONGEST)
        self._replaced.clear()

    def _numbered(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}-{self._numbers[kind]}"

    def learn_object(self, kind: str, document: Mapping[str, Any]) -> None:
        """Its name, its namespace, its owners, its images, and the node that it is on. Names of the installation
        stay."""
        metadata, spec, status = (_mapping(document.get(key)) for key in ("metadata", "spec", "status"))
        name, namespace = _text(metadata.get("name")), _text(metadata.get("namespace"))
        if namespace in self._installation:
            self._kept.add(name)
            self._looked_for(name)
            for image in _images(spec):
                self._aliases.setdefault(image, image.rpartition("/")[2])
                self._looked_for(image)
        elif kind != "priorityclass" or not _OF_EVERYBODY.match(name):
            self.learn("namespace", namespace)
            self.learn(kind, name)
            for owner in _mappings(metadata.get("ownerReferences")):
                self._learn_owner(_text(owner.get("kind")).lower() or "owner", _text(owner.get("name")))
            for key, value in (_mapping(metadata.get("labels")) | _mapping(metadata.get("annotations"))).items():
                if _KNOWN_DOMAINS.match(key) and _NAMING.search(key) and _TOKEN.fullmatch(_text(value)):
                    self.learn("name", value)
            for pod_spec in (spec, _mapping(_mapping(spec.get("template")).get("spec"))):
                self._learn_spec(pod_spec)
            for key in _STATUSES:
                for each in _mappings(status.get(key)):
                    self._learn_image(_text(each.get("image")))
        self.learn("node", _text(spec.get("nodeName")))
        for each in (*_mappings(status.get("addresses")), *_mappings(status.get("podIPs"))):
            self._address(_text(each.get("address")) or _text(each.get("ip")))

    def _learn_spec(self, spec: Mapping[str, Any]) -> None:
        self._priority_class(_text(spec.get("priorityClassName")))
        for container in (each for key in _CONTAINERS for each in _mappings(spec.get(key))):
            self._whole.setdefault(_text(container.get("name")), f"container-{len(self._whole) + 1}")
        for image in _images(spec):
            self._learn_image(image)

    def _learn_owner(self, kind: str, name: str) -> None:
        if kind == "replicaset":
            # Of a Deployment, whose name is that without the hash of the template.
            self.learn("deployment", name.rpartition("-")[0])
        self.learn(kind, name)

    def _learn_image(self, image: str) -> None:
        """And its repository and registry, which stand in texts without a tag."""
        self.learn("image", image)
        repository = re.sub(r"(?::[\w.-]+)?(?:@[\w:]+)?\Z", "", image)
        registry, slash, _ = repository.partition("/")
        if slash and registry not in _PUBLIC_REGISTRIES:
            self.learn("image", repository)
            if "." in registry or ":" in registry:
                self.learn("registry", registry)

    def _priority_class(self, name: str) -> str:
        if _OF_EVERYBODY.match(name):
            return name
        self.learn("priorityclass", name)
        return self._aliases.get(name, name)

    def text(self, text: str) -> str:
        """With every name replaced that is known, and with every address and image."""
        if self._phrase is not None:
            text = self._phrase.sub(lambda found: self._phrases[found[0]], text)
        text = _TAINT.sub(self._taint, text)
        text = _IMAGE.sub(lambda found: self._image(found[0], ours=False), text)
        text = _IPV6.sub(lambda found: self._ipv6(found[0]), text)
        text = _ADDRESS.sub(lambda found: self._address(found[0]), text)
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def document(self, document: Any, *, ours: bool = False) -> Any:
        """A copy with the names replaced in keys and values; of ``ours``, images, labels and variables stay."""
        return self._value("", document, ours)

    def _value(self, name: str, value: Any, ours: bool) -> Any:
        if isinstance(value, Mapping):
            labels = name in _LABELS
            kept = [
                (key, each)
                for key, each in self._selecting(value, ours).items()
                if (_is_known(key, ours) if labels else ours or key not in _DROPPED)
            ]
            return {self._key(key): self._value(key, each, ours) for key, each in kept}
        if isinstance(value, list):
            return [self._value(name, each, ours) for each in value]
        if not isinstance(value, str):
            return value
        if name == "image":
            return self._image(value, ours)
        if name == "topologyKey":
            return self._label("label", value, ours)
        if name == "priorityClassName":
            return self._priority_class(value)
        return self._address(value) if name in _ADDRESSES and _ADDRESS.fullmatch(value) else self.text(value)

    def _selecting(self, value: Mapping[str, Any], ours: bool) -> Mapping[str, Any]:
        """A toleration, a taint or a requirement of a selector, without the labels of others."""
        key = value.get("key")
        if not isinstance(key, str) or not _SELECTING & value.keys() or _is_known(key, ours):
            return value
        values = (
            {"values": [self._label("value", str(each)) for each in value["values"]]} if value.get("values") else {}
        )
        one = {"value": self._label("value", str(value["value"]))} if value.get("value") else {}
        return {**value, "key": self._label("label", key), **one, **values}

    def _label(self, kind: str, text: str, ours: bool = False) -> str:
        if not text or (kind == "label" and _is_known(text, ours)):
            return text
        if text not in self._labels:
            self._labels[text] = self._numbered(kind)
        return self._labels[text]

    def _taint(self, found: re.Match[str]) -> str:
        key, value = found[2], found[4]
        if not _is_known(key, ours=False):
            key, value = self._label("label", key), self._label("value", value)
        return f"{found[1]}{key}{found[3]}{value}"

    def _image(self, image: str, ours: bool) -> str:
        if ours:
            return image.rpartition("/")[2]
        self._learn_image(image)
        return self._aliases.get(image, image)

    def _key(self, key: Any) -> Any:
        # Names of fields are in camel case, or words of ours; a node or a pod is a key where figures are listed by it.
        if not isinstance(key, str) or key in _FIELDS or (key.isalpha() and key not in self._aliases):
            return key
        return self.text(key)

    def _address(self, address: str) -> str:
        if ":" in address:
            return self._ipv6(address)
        self.learn("address", address)
        return self._aliases.get(address, address)

    def _ipv6(self, written: str) -> str:
        """However it is written, and with the stop or the colon that may follow it."""
        for text in (written, written.rstrip(".:")):
            try:
                address = IPv6Address(text)
            except AddressValueError:
                continue
            if address.is_loopback or address.is_unspecified:
                return written
            canonical = str(address.ipv4_mapped or address)
            self.learn("address", canonical)
            return self._aliases[canonical] + written[len(text) :]
        return written

    def _word(self, word: str) -> str:
        found = self._replaced.get(word)
        if found is None:
            if len(self._replaced) >= _MOST_REMEMBERED:
                self._replaced.clear()
            found = self._replaced[word] = self._with_parts(word)
        return found

    def _with_parts(self, word: str) -> str:
        """With each part replaced that is a name, the longest first: pods are called after what makes them, events
        after pods, and nodes have domains."""
        if word in self._aliases:
            return self._aliases[word]
        # Where parts begin; a part ends one before.
        breaks = [0, *(found.end() for found in _BREAKS.finditer(word)), len(word) + 1]
        written: list[str] = []
        index = 0
        while index < len(breaks) - 1:
            index, part = self._part_at(word, breaks, index)
            end = breaks[index] - 1
            written += (part, word[end : end + 1])
        return "".join(written)

    def _part_at(self, word: str, breaks: list[int], index: int) -> tuple[int, str]:
        """The break behind the longest name that begins at a break, and what is written for it; without a name, that
        of what stands there."""
        start = breaks[index]
        last = bisect_right(breaks, start + self._longest + 1) - 1
        for end in range(last, index, -1):
            part = word[start : breaks[end] - 1]
            if part in self._kept:
                return end, part
            # Numbers are also parts of dates and versions.
            if part in self._aliases and not part.isdigit():
                return end, self._aliases[part]
            around = word[start - 1 : start], word[breaks[end] - 1 : breaks[end]]
            if part in self._whole and not _WITHIN_NAMES.intersection(around):
                return end, self._whole[part]
        return index + 1, word[start : breaks[index + 1] - 1]


def _is_known(key: Any, ours: bool) -> bool:
    """Whether a label is one of Kubernetes or ours; of objects of ``ours``, those without a domain are."""
    return isinstance(key, str) and (bool(_KNOWN_DOMAINS.match(key)) or (ours and "/" not in key))


def _images(spec: Mapping[str, Any]) -> list[str]:
    containers = (each for key in _CONTAINERS for each in _mappings(spec.get(key)))
    return [image for each in containers if (image := _text(each.get("image")))]


def _mapping(value: Any) -> dict[str, Any]:
    """Where an object is as nobody expects, there is nothing to learn."""
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
