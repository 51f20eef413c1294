"""CustomResourceDefinitions at work: each served version becomes a ``Resource`` the moment its definition is stored."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from typing import Any

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.managed_fields.schema import of_definition
from koordinator.cluster.resource import Conversion, CurrentForm, Registry, Resource, ScalePaths
from koordinator.cluster.storage.interface import Change, Stored
from koordinator.cluster.strategy.custom import CustomResourceStrategy, CustomSchema
from koordinator.cluster.structural_schema.stored_form import ConvertedForm, StoredForm
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.target import decode

_LOG = logging.getLogger(__name__)
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


MakeConversion = Callable[[Document], Conversion]
"""From the spec of a definition whose versions a webhook converts."""


def resources_of(crd: Document, since: int | None = None, conversion: MakeConversion | None = None) -> list[Resource]:
    """What a definition serves; its versions share their objects. Without ``conversion`` no webhook is called.

    Objects of a revision above ``since`` were written under the schemas of this definition; None: no one knows.
    """
    forms = _Forms(crd, since, conversion)
    return [_resource(crd["spec"], version, forms) for version in crd["spec"]["versions"] if version.get("served")]


class _Forms:
    """How the versions of a definition turn into each other and into what is stored."""

    def __init__(self, crd: Document, since: int | None, conversion: MakeConversion | None) -> None:
        versions = crd["spec"]["versions"]
        self.strategies = {version["name"]: CustomResourceStrategy(crd, version["name"]) for version in versions}
        self._storage = next((version["name"] for version in versions if version.get("storage")), versions[0]["name"])
        self._alike = len({msgspec.json.encode(_schema(version), order="sorted") for version in versions}) == 1
        self._since = since if self._alike else None
        self._group: str = crd["spec"]["group"]
        is_converted = (crd["spec"].get("conversion") or {}).get("strategy") == "Webhook"
        self.conversion = conversion(crd["spec"]) if is_converted and conversion is not None else None
        self.stored_as = f"{self._group}/{self._storage}" if len(versions) > 1 else ""
        self._first = ((crd.get("status") or {}).get("storedVersions") or [self._storage])[0]

    def to_stored(self, name: str) -> Callable[[Document], Document] | None:
        """The storage version may know less than the one that is written."""
        is_same = self._alike or name == self._storage or self.conversion is not None
        return None if is_same else partial(_pruned, self._stored)

    def current(self, name: str) -> CurrentForm:
        if self.conversion is not None:
            # What names no version was stored when there was one only.
            return ConvertedForm(self.strategies[name].schema, *(f"{self._group}/{v}" for v in (name, self._first)))
        shown = None if self._alike or name == self._storage else self.strategies[name].schema
        return StoredForm(self._stored, shown, self._since)

    @property
    def _stored(self) -> CustomSchema:
        return self.strategies[self._storage].schema


def _resource(spec: Document, version: Document, forms: _Forms) -> Resource:
    names, name = spec["names"], version["name"]
    return Resource(
        group=spec["group"],
        version=name,
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        strategy=forms.strategies[name],
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(name for name in ("status", "scale") if name in (version.get("subresources") or {})),
        scale=_scale(version),
        storage_version=bool(version.get("storage")),
        schema=_schema(version),
        unconditional_update=False,
        to_stored=forms.to_stored(name),
        atom=of_definition(_schema(version), preserves_unknown=bool(spec.get("preserveUnknownFields"))),
        current=forms.current(name),
        stored_as=forms.stored_as,
        conversion=forms.conversion,
    )


def _scale(version: Document) -> ScalePaths | None:
    paths = (version.get("subresources") or {}).get("scale")
    if paths is None:
        return None
    named = (paths.get(f"{name}Path") or "" for name in ("specReplicas", "statusReplicas", "labelSelector"))
    replicas, status_replicas, selector = (tuple(path.removeprefix(".").split(".")) if path else () for path in named)
    return ScalePaths(replicas, status_replicas, selector, custom=True)


def _schema(version: Document) -> Document | None:
    schema: Document | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _pruned(schema: CustomSchema, obj: Document) -> Document:
    schema.prune(obj)
    return obj


class CustomResources:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, environment: Environment, conversion: MakeConversion | None = None) -> None:
        """``conversion`` is None where no webhooks are called."""
        self._conversion = conversion
        definitions = environment.registry.stored[*DEFINITIONS]
        assert definitions is not None
        self._definitions = definitions
        self._storage = environment.storage
        self._registry: Registry = environment.registry
        self._loaded: int | None = None
        """Up to this revision the definitions are served already; None: unknown."""
        self._broken: dict[str, str] = {}
        """Key -> why the definition cannot be served."""

    def load(self) -> None:
        """Serve what is stored, and nothing else; done before the first request, and anew when ``follow`` is."""
        page = self._storage.list(self._definitions.prefix)
        self._broken.clear()
        served = {served for stored in page.items if (served := self._try(self._serve, stored, page.revision))}
        for gone in {(r.group, r.plural) for r in self._registry if not self._is_built_in(r)} - served:
            self._registry.remove(*gone)
        self._loaded = page.revision

    def check(self) -> str:
        """Which definitions cannot be served, and why; empty when all are."""
        return "; ".join(f"{key.rpartition('/')[2]}: {why}" for key, why in sorted(self._broken.items()))

    async def watch(self) -> AsyncIterator[None]:
        """Follow the definitions until the store closes.

        The store wakes watchers before it returns to the writer, so a kind is served when its creation returns.
        """
        if self._loaded is None:
            self.load()
        assert self._loaded is not None
        with closing(self._storage.watch(self._definitions.prefix, self._loaded)) as cursor:
            self._loaded = None
            yield
            while (changes := await cursor.next()) is not None:
                for change in changes:
                    self._try(self._take_over, change)
                yield

    def _try(self, work: Callable[..., tuple[str, str] | None], subject: Stored | Change, *rest: int) -> Any:
        """One definition that cannot be read must not keep the others from being served."""
        try:
            return work(subject, *rest)
        except Exception as error:
            _LOG.exception("%s cannot be served", subject.key)
            self._broken[subject.key] = f"{type(error).__name__}: {error}"
            return None

    def _take_over(self, change: Change) -> None:
        since = self._storage.revision()
        broken = self._broken.pop(change.key, None)
        if change.previous is not None and broken is None:
            before = decode(self._definitions, change.previous)["spec"]
            if change.type != "deleted" and _same_schemas(before, decode(self._definitions, change.current)["spec"]):
                since = self._since(before, since)
            self._remove(before["group"], before["names"]["plural"])
        if change.type != "deleted":
            self._serve(change.current, since)

    def _since(self, spec: Document, now: int) -> int:
        """From which revision on objects have gone through the schemas that are served."""
        served = self._registry.stored[spec["group"], spec["names"]["plural"]]
        since = served.current.since if served is not None and served.current is not None else None
        return now if since is None else since

    def _remove(self, group: str, plural: str) -> None:
        if not self._registry.is_built_in(group, plural):
            self._registry.remove(group, plural)

    def _is_built_in(self, resource: Resource) -> bool:
        return self._registry.is_built_in(resource.group, resource.plural)

    def _serve(self, stored: Stored, since: int) -> tuple[str, str]:
        """Returns the group and the plural. The schema under which objects up to ``since`` were stored is unknown."""
        definition = decode(self._definitions, stored)
        for resource in resources_of(definition, since, self._conversion):
            if not self._is_built_in(resource):
                self._registry.add(resource)
        return definition["spec"]["group"], definition["spec"]["names"]["plural"]


def _same_schemas(before: Document, now: Document) -> bool:
    def schemas(spec: Document) -> list[tuple[str, bool, Document | None]]:
        return [(version["name"], bool(version.get("storage")), _schema(version)) for version in spec["versions"]]

    return schemas(before) == schemas(now) and before.get("preserveUnknownFields") == now.get("preserveUnknownFields")
