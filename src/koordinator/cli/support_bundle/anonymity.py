"""Other names for what a bundle names: an object has the same one wherever it stands, and nobody can tell which it was.

Names are learned from objects, before anything is written; in texts, such as logs, whatever looks like one of them is
replaced. Our own programs, the namespaces that every cluster has and the words of Kubernetes stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9])[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?![A-Za-z0-9])")
_ADDRESS: Final = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.])")
_KEPT: Final = frozenset(
    {"default", "kube-system", "kube-public", "kube-node-lease", "kubernetes", "koordinator", "koord"}
)
_KNOWN_DOMAINS: Final = re.compile(r"(?:[\w.-]+\.)?(?:koordinator\.sh|k8s\.io|kubernetes\.io)/")
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
_BREAKS: Final = re.compile(r"[.-]")
_LONGEST: Final = 253
"""Characters of a name of Kubernetes."""
_ADDRESSES: Final = frozenset({"podIP", "hostIP", "ip", "address", "clusterIP"})


class Names:
    """``kept`` are names that stay: those of the installation."""

    def __init__(self, kept: Collection[str] = ()) -> None:
        self._aliases: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        """Of containers, whose names are often words: they are never looked for within others."""
        self._texts: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._replaced: dict[str, str] = {}
        """What has become of a token: most of a log are the same few."""
        self._installation = frozenset(kept)
        self._kept = {*_KEPT, *kept}
        self.is_complete = True
        """Whether the names of all pods, nodes and namespaces are known, so that texts can be written."""

    def learn(self, kind: str, name: str) -> None:
        """``name`` is from now on ``kind-N``, unless it has another one or stays."""
        if name and name not in self._kept and name not in self._aliases:
            self._numbers[kind] += 1
            self._aliases[name] = f"{kind}-{self._numbers[kind]}"
            self._replaced.clear()

    def learn_text(self, text: str, instead: str) -> None:
        """Something that is no name of an object, such as the URL of the API server."""
        if text:
            self._texts[text] = instead

    def learn_object(self, kind: str, document: Mapping[str, Any]) -> None:
        """Its name, its namespace, its owners, and the node that it is on. Names of the installation stay."""
        metadata = document.get("metadata") or {}
        namespace = metadata.get("namespace") or ""
        if namespace in self._installation:
            self._kept.add(metadata.get("name") or "")
        else:
            self.learn("namespace", namespace)
            self.learn(kind, metadata.get("name") or "")
            for owner in metadata.get("ownerReferences") or ():
                self._learn_owner(str(owner.get("kind", "owner")).lower(), owner.get("name") or "")
            for key, value in ((metadata.get("labels") or {}) | (metadata.get("annotations") or {})).items():
                if _KNOWN_DOMAINS.match(key) and _NAMING.search(key) and _TOKEN.fullmatch(value):
                    self.learn("name", value)
            spec = document.get("spec") or {}
            template = (spec.get("template") or {}).get("spec") or {}
            for container in (
                each for key in _CONTAINERS for each in (*(spec.get(key) or ()), *(template.get(key) or ()))
            ):
                self._whole.setdefault(container.get("name") or "", f"container-{len(self._whole) + 1}")
        spec, status = document.get("spec") or {}, document.get("status") or {}
        self.learn("node", spec.get("nodeName") or "")
        for each in (*(status.get("addresses") or ()), *(status.get("podIPs") or ())):
            self._learn_address(each.get("address") or each.get("ip") or "")

    def _learn_owner(self, kind: str, name: str) -> None:
        if kind == "replicaset":
            # Of a Deployment, whose name is that without the hash of the template.
            self.learn("deployment", name.rpartition("-")[0])
        self.learn(kind, name)

    def _learn_address(self, address: str) -> None:
        if ":" in address:
            self._numbers["address"] += 1
            self._texts.setdefault(address, f"address-{self._numbers['address']}")
        else:
            self.learn("address", address)

    def text(self, text: str) -> str:
        """With every name replaced that is known, and with every address."""
        for known in sorted(self._texts, key=len, reverse=True):
            text = text.replace(known, self._texts[known])
        text = _ADDRESS.sub(self._address, text)
        return _TOKEN.sub(lambda found: self._token(found[0]), text)

    def document(self, document: Any, *, ours: bool = False) -> Any:
        """A copy with the names replaced in keys and values; of ``ours``, images, labels and variables stay."""
        return self._value("", document, ours)

    def _value(self, name: str, value: Any, ours: bool) -> Any:
        if isinstance(value, Mapping):
            labels = name in _LABELS
            kept = [
                (key, each)
                for key, each in value.items()
                if (_KNOWN_DOMAINS.match(key) or (ours and "/" not in key) if labels else ours or key not in _DROPPED)
            ]
            return {self._key(key): self._value(key, each, ours) for key, each in kept}
        if isinstance(value, list):
            return [self._value(name, each, ours) for each in value]
        if not isinstance(value, str):
            return value
        if name == "image":
            return self._image(value, ours)
        if name in _ADDRESSES:
            self._learn_address(value)
        return self.text(value)

    def _image(self, image: str, ours: bool) -> str:
        if ours:
            return image.rpartition("/")[2]
        self.learn("image", image)
        return self._aliases.get(image, image)

    def _key(self, key: str) -> str:
        # Names of fields are in camel case, or words of ours; a node or a pod is a key where figures are listed by it.
        return key if key.isalpha() else self.text(key)

    def _address(self, found: re.Match[str]) -> str:
        self.learn("address", found[0])
        return self._aliases.get(found[0], found[0])

    def _token(self, token: str) -> str:
        if token in self._kept:
            return token
        if token in self._whole and token not in self._aliases:
            return self._whole[token]
        found = self._replaced.get(token)
        if found is None:
            found = self._replaced[token] = self._with_parts(token)
        return found

    def _with_parts(self, token: str) -> str:
        """With each part replaced that is a name, the longest first: pods are called after what makes them, events
        after pods, and nodes have domains."""
        if token in self._aliases:
            return self._aliases[token]
        # Where parts begin; a part ends one before.
        breaks = [0, *(found.end() for found in _BREAKS.finditer(token)), len(token) + 1]
        written: list[str] = []
        index = 0
        while index < len(breaks) - 1:
            start = breaks[index]
            index = max(index + 1, self._end_of_name(token, breaks, index))
            end = breaks[index] - 1
            written += (self._part(token[start:end]), token[end : end + 1])
        return "".join(written)

    def _end_of_name(self, token: str, breaks: list[int], index: int) -> int:
        """The break behind the longest name that begins at a break; 0 if none does."""
        last = bisect_right(breaks, breaks[index] + _LONGEST + 1) - 1
        names = (self._kept, self._aliases)
        for end in range(last, index, -1):
            part = token[breaks[index] : breaks[end] - 1]
            if any(part in known for known in names):
                return end
        return 0

    def _part(self, part: str) -> str:
        """Numbers are also parts of dates and versions."""
        return part if part in self._kept or part.isdigit() else self._aliases.get(part, part)
