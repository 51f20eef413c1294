"""Typing mistakes in objects that an API server takes in silence: labels that nothing reads, values that stand for
nothing, fields of the SLO ConfigMap that no program knows. koord-manager's webhooks warn of them, `koord lint` lists
them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, get_args, get_origin

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode_any
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.qos import QoSClass
from koordinator.api.struct_fields import bare_type, struct_fields
from koordinator.base.spelling import did_you_mean, meant
from koordinator.model.slo_configuration.configuration_keys import ALL_KEYS, ConfigurationKey

Document = Mapping[str, Any]
_DOMAINS: Final = ("koordinator.sh", "scheduling.sigs.k8s.io")
_BELOW_DOMAINS: Final = tuple(f".{domain}" for domain in _DOMAINS)
_EACH_NODES_OWN: Final = frozenset({"name", "nodeSelector"})
_TEMPLATE: Final = ("spec", "template")
_JOB_TEMPLATE: Final = ("spec", "jobTemplate", "spec", "template")
_KEYS: Final = {key.name: key for key in ALL_KEYS}
_QUALITIES: Final = tuple(each.value for each in QoSClass if each.value)


def _keys_of(module: ModuleType) -> Mapping[str, str]:
    """The label or annotation -> the name of its constant."""
    return {value: name for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


_KEYED: Final = {"labels": _keys_of(label_keys), "annotations": _keys_of(annotation_keys)}
"""What the programs read of an object's metadata."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """``path`` leads from the object to the field; ``inner`` goes on in the JSON text that the field holds."""

    path: str
    message: str
    inner: str = ""

    @property
    def full_path(self) -> str:
        """Of both."""
        return below(self.path, self.inner) if self.inner else self.path

    def __str__(self) -> str:
        return f"{self.full_path}: {self.message}"


def new_mistakes(document: Document, old: Document | None, quotas: Collection[str] | None) -> tuple[str, ...]:
    """What to warn of when an object is written: what was wrong with it before has been said."""
    found = mistakes_of(document, quotas)
    if not found:
        return ()
    before = set(mistakes_of(old, quotas)) if old else set[Mistake]()
    return tuple(str(each) for each in found if each not in before)


def mistakes_of(document: Document, quotas: Collection[str] | None) -> list[Mistake]:
    """Those in the labels and annotations of an object, of any kind, and of the pods that it makes. ``quotas``: the
    names of the quotas that there are; None where that is not known."""
    found = _of_keys(document, "")
    for path, pod in pods_of(document):
        if path:
            found += _of_keys(pod, path)
        found += _of_values(pod, path, quotas)
    return found


def pods_of(document: Document) -> Sequence[tuple[str, Document]]:
    """The pod that the object is, or that its template makes, each with its path."""
    kind = document.get("kind")
    if kind == "Pod":
        return (("", document),)
    steps = _JOB_TEMPLATE if kind == "CronJob" else _TEMPLATE
    found: Any = document
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        return ((".".join(steps), found),)
    return ()


def _of_values(pod: Document, path: str, quotas: Collection[str] | None) -> list[Mistake]:
    labels, found = member(member(pod, "metadata"), "labels"), list[Mistake]()
    if (qos := labels.get(label_keys.QOS_CLASS)) and qos not in _QUALITIES:
        text = (
            f"{qos!r} is no quality of service, the pod would have none: {', '.join(_QUALITIES)} are"
            f"{did_you_mean(str(qos), _QUALITIES)}"
        )
        found.append(Mistake(f"{below(path, 'metadata.labels')}[{label_keys.QOS_CLASS}]", text))
    if (quota := labels.get(label_keys.QUOTA_NAME)) is not None and quotas is not None and quota not in quotas:
        text = f"there is no quota {quota!r}, the pod would be of the default quota{did_you_mean(str(quota), quotas)}"
        found.append(Mistake(f"{below(path, 'metadata.labels')}[{label_keys.QUOTA_NAME}]", text))
    return found


def _of_keys(document: Document, path: str) -> list[Mistake]:
    metadata, found = member(document, "metadata"), list[Mistake]()
    for name in _KEYED:
        for key in member(metadata, name):
            if text := _wrong_key(name, key):
                found.append(Mistake(f"{below(path, 'metadata')}.{name}[{key}]", text))
    return found


@lru_cache(maxsize=4096)
def _wrong_key(name: str, key: str) -> str:
    """Why a label or an annotation of our domains is read by no program; empty for all others, and for one that is
    like none that some program reads."""
    domain = key.partition("/")[0]
    known = _KEYED[name]
    if key in known or not (domain in _DOMAINS or domain.endswith(_BELOW_DOMAINS)):
        return ""
    other = "annotations" if name == "labels" else "labels"
    if key in _KEYED[other]:
        return f"it is read from {other}, not from {name}"
    near = meant(key, known)
    return f"no program reads it; did you mean {near}?" if near else ""


def mistakes_of_configuration(data: Mapping[str, str]) -> Iterator[Mistake]:
    """Keys of the SLO ConfigMap, and fields of their JSON texts, that no program knows. A text that is no JSON has
    none: the check of the ConfigMap refuses it."""
    for name, text in data.items():
        key = _KEYS.get(name)
        if key is not None:
            yield from (Mistake(f"data[{name}]", message, path) for path, message in _unknown_in_key(key, _read(text)))
        elif near := meant(str(name), _KEYS):
            yield Mistake(f"data[{name}]", f"no program reads it; did you mean {near}?")


def _read(text: str) -> Any:
    try:
        return decode_any(text)
    except DecodeError:
        return None


def _unknown_in_key(key: ConfigurationKey[Any], document: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(document, dict):
        return
    groups = "nodeConfigs" if key.inline else "nodeStrategies"
    if key.inline:
        cluster = {name: each for name, each in document.items() if name != groups}
        yield from _unknown_in_struct(cluster, key.strategy, "")
    else:
        yield from _unknown_names(document, ("clusterStrategy", groups), "")
        yield from _unknown_in_struct(document.get("clusterStrategy"), key.strategy, "clusterStrategy")
    for index, entry in enumerate(document.get(groups) or ()):
        if isinstance(entry, dict):
            rest = {name: each for name, each in entry.items() if name not in _EACH_NODES_OWN}
            yield from _unknown_in_struct(rest, key.strategy, f"{groups}[{index}]")


def _unknown_in_struct(value: Any, expected: Any, path: str) -> Iterator[tuple[str, str]]:
    bare, _, _ = bare_type(expected)
    if isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        yield from _unknown_names(value, {*_wire_names(bare), EXTENSIONS_MEMBER}, path)
        for field in struct_fields(bare):
            yield from _unknown_in_struct(value.get(field.wire_name), field.type, below(path, field.wire_name))
    elif isinstance(value, list) and get_origin(bare) is list:
        for index, item in enumerate(value):
            yield from _unknown_in_struct(item, get_args(bare)[0], f"{path}[{index}]")


def _unknown_names(value: Mapping[str, Any], known: Collection[str], path: str) -> Iterator[tuple[str, str]]:
    for name in value:
        if name not in known:
            yield below(path, str(name)), f"no such field{did_you_mean(str(name), known)}"


def _wire_names(struct: type[msgspec.Struct]) -> list[str]:
    return [field.wire_name for field in struct_fields(struct)]


def member(document: Document, name: str) -> Document:
    """The object at a key; an empty one where there is none, or something else."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
