"""The catalogue of compiled profiles, which of them match an object, and their application one after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.document import Document
from koordinator.api.kinds import NAMESPACES
from koordinator.api.kubernetes_types.table import ObjectType
from koordinator.manager.webhook.colocation_profile.changes import (
    ColocationCluster,
    UnknownObjectError,
    apply_patch,
    apply_profile,
)
from koordinator.manager.webhook.colocation_profile.compiled import ALWAYS, CompiledProfile, compile_profile

_PLACE: Final = operator.itemgetter(0)
Draw = Callable[[], int]
"""A random whole number from 0 to 99."""


@dataclass(frozen=True, slots=True)
class Matches:
    """What is there for one object."""

    profiles: Sequence[CompiledProfile]
    """Those that can be used, in the order in which they are applied: by name. An unusable one has no effect at all:
    resources that are translated without the QoS class that it also sets would have the pod refused."""
    warnings: Sequence[str]
    """Of profiles that may have been meant for the object and cannot be used."""


class SelectorIndex:
    """Profiles by a label that they require: an object without it is not compared with their other requirements."""

    def __init__(self, profiles: Iterable[CompiledProfile]) -> None:
        self._always: list[tuple[int, CompiledProfile]] = []
        self._by_label: dict[tuple[str, str], list[tuple[int, CompiledProfile]]] = {}
        for place, profile in enumerate(profiles):
            required = min(profile.objects.equalities, default=None) if profile.objects_readable else None
            where = self._always if required is None else self._by_label.setdefault(required, [])
            where.append((place, profile))

    def may_match(self, labels: Mapping[str, str]) -> list[CompiledProfile]:
        """Those whose selectors an object's labels match, in the order in which they were given."""
        found = list(self._always)
        for label in labels.items():
            found += self._by_label.get(label, ())
        found.sort(key=_PLACE)
        return [profile for _, profile in found if profile.may_match_labels(labels)]


class ProfileCatalogue:
    """Keeps what was compiled for as long as the profile stays as it is."""

    def __init__(self, cluster: ColocationCluster, patched: ObjectType) -> None:
        self._cluster = cluster
        self._patched = patched
        self._compiled: Mapping[str, CompiledProfile] = {}
        self._index = SelectorIndex(())
        self._sources: Sequence[ClusterColocationProfile] = ()

    def for_pod(self, labels: Mapping[str, str], namespace: str) -> Matches:
        """Raises ProfileError where it depends on the labels of a namespace that is not known."""
        candidates = self._profiles().may_match(labels)
        if any(not profile.namespaces.empty for profile in candidates):
            of_namespace = self._cluster.namespace_labels(namespace)
            if of_namespace is None:
                candidates = _without_namespace(candidates, namespace)
            else:
                candidates = [profile for profile in candidates if profile.may_match_namespace(of_namespace)]
        return _matches(candidates)

    def for_cluster_object(self, labels: Mapping[str, str]) -> Matches:
        """For objects without a namespace. A profile that chooses pods by their namespaces alone means none of them."""
        return _matches(
            [
                profile
                for profile in self._profiles().may_match(labels)
                if not (profile.objects.empty and not profile.namespaces.empty)
            ]
        )

    def _profiles(self) -> SelectorIndex:
        sources = list(self._cluster.colocation_profiles())
        if len(sources) != len(self._sources) or not all(map(operator.is_, sources, self._sources)):
            compiled = {each.metadata.name: self._compile(each) for each in sources}
            self._compiled = {name: compiled[name] for name in sorted(compiled)}
            self._index = SelectorIndex(self._compiled.values())
            self._sources = sources
        return self._index

    def _compile(self, profile: ClusterColocationProfile) -> CompiledProfile:
        known = self._compiled.get(profile.metadata.name)
        return known if known is not None and known.source is profile else compile_profile(profile, self._patched)


def _without_namespace(candidates: Sequence[CompiledProfile], namespace: str) -> list[CompiledProfile]:
    """Those that do not require labels of a namespace that is not known. Raises ProfileError where a profile that
    can be used requires them."""
    for profile in candidates:
        if profile.is_usable and not profile.namespaces.empty:
            raise UnknownObjectError(
                NAMESPACES,
                namespace,
                f'the labels of the namespace "{namespace}" are not known yet, which spec.namespaceSelector of the '
                f'ClusterColocationProfile "{profile.name}" asks for: try again',
            )
    return [profile for profile in candidates if profile.namespaces.empty]


def _matches(candidates: Sequence[CompiledProfile]) -> Matches:
    return Matches(
        profiles=[profile for profile in candidates if profile.is_usable],
        warnings=[profile.warning for profile in candidates if profile.warning],
    )


class ProfileEngine:
    """For objects of one type. ``pod_spec`` finds the part of such an object that schedules pods, None without one."""

    def __init__(
        self,
        cluster: ColocationCluster,
        draw: Draw,
        pod_spec: Callable[[Document], Document | None],
    ) -> None:
        self._cluster = cluster
        self._draw = draw
        self._pod_spec = pod_spec

    def drawn(self, matches: Matches) -> list[CompiledProfile]:
        """Those of the matching profiles that one object gets: some have a probability."""
        return [each for each in matches.profiles if each.percent >= ALWAYS or self._draw() < each.percent]

    def apply(self, profiles: Iterable[CompiledProfile], target: Document) -> Document:
        """``target`` as the profiles want it, changed in place. Raises ProfileError."""
        for profile in profiles:
            apply_profile(profile, target, self._pod_spec(target), self._cluster)
            target = apply_patch(profile, target)
        return target
