"""A profile, compiled when it is created or changes instead of once for every pod: selectors, probability and patch.

A profile that cannot be used is not applied at all, since half of it may be worse than nothing (a priority without the
quality of service that goes with it). It does not get objects refused: the client that creates an object that it may
select gets a warning. Unlike elsewhere in Kubernetes, an absent selector of a profile matches everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.annotations import SKIP_UPDATE_RESOURCES
from koordinator.api.codec import encode
from koordinator.api.colocation_profile import ClusterColocationProfile, ClusterColocationProfileSpec
from koordinator.api.constraints import IntOrString
from koordinator.api.document import Document, copied
from koordinator.api.field_error import FieldError
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import ObjectType
from koordinator.api.labels import PRIORITY, QOS_CLASS
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.names import label_key, label_value
from koordinator.manager.webhook.colocation_profile.compiled_patch import CompiledPatch, compile_patch
from koordinator.model.label_selector import EVERYTHING, NOTHING, CompiledSelector, compile_selector
from koordinator.model.patch.errors import PatchError
from koordinator.model.patch.strategic import apply_strategic_patch, check_merge_keys

ALWAYS: Final = 100
_PERCENT: Final = re.compile(r"([+-]?[0-9]{1,18})%")
_WITH_VALUES: Final = ("In", "NotIn")
_OPERATORS: Final = (*_WITH_VALUES, "Exists", "DoesNotExist")
_KEY: Final = "must be a label key such as app or example.com/app"
_VALUE: Final = "must be a label value: empty, or at most 63 letters, digits, '-', '_' and '.'"
_SHOWN_LENGTH: Final = 80


def parse_probability(value: IntOrString | None) -> tuple[int, FieldError | None]:
    """The percentage (0 and less: never, 100 and more: always), and the error of a text that is no percentage."""
    if value is None:
        return ALWAYS, None
    if isinstance(value, int):
        return value, None
    matched = _PERCENT.fullmatch(value)
    if matched is None:
        allowed = "must be a whole number from 0 to 100, or such a number followed by %"
        return 0, FieldError.invalid("spec.probability", value, allowed)
    return int(matched[1]), None


def compile_profile_selector(selector: LabelSelector | None, path: str) -> tuple[CompiledSelector, list[FieldError]]:
    """The compiled selector; NOTHING and its errors where it cannot be used."""
    if selector is None:
        return EVERYTHING, []
    problems = list(_problems(selector, path))
    return (NOTHING, problems) if problems else (compile_selector(selector), [])


def _problems(selector: LabelSelector, path: str) -> Iterator[FieldError]:
    for key, value in selector.match_labels.items():
        if label_key(key):
            yield FieldError.invalid(f"{path}.matchLabels", key, _KEY)
        if label_value(value):
            yield FieldError.invalid(f"{path}.matchLabels[{key}]", value, _VALUE)
    for index, requirement in enumerate(selector.match_expressions):
        yield from _expression_problems(requirement, f"{path}.matchExpressions[{index}]")


def _expression_problems(requirement: LabelSelectorRequirement, path: str) -> Iterator[FieldError]:
    if label_key(requirement.key):
        yield FieldError.invalid(f"{path}.key", requirement.key, _KEY)
    if requirement.operator not in _OPERATORS:
        yield FieldError.not_supported(f"{path}.operator", requirement.operator, _OPERATORS)
    elif requirement.operator in _WITH_VALUES and not requirement.values:
        yield FieldError.required(f"{path}.values", f"the operator {requirement.operator} needs at least one value")
    elif requirement.operator not in _WITH_VALUES and requirement.values:
        allowed = f"the operator {requirement.operator} takes no values"
        yield FieldError.invalid(f"{path}.values", requirement.values, allowed)
    for value in requirement.values:
        if label_value(value):
            yield FieldError.invalid(f"{path}.values", value, _VALUE)


@dataclass(frozen=True, slots=True)
class CompiledProfile:
    """A profile with its selectors, probability and patch compiled; ``source`` is the profile itself."""

    source: ClusterColocationProfile
    name: str
    objects: CompiledSelector
    namespaces: CompiledSelector
    objects_readable: bool
    namespaces_readable: bool
    percent: int
    patch: Document | None
    apply_patch: CompiledPatch | None
    """Applies ``patch`` to objects of the type that it is for; None without a valid patch."""
    last_labels: Mapping[str, str]
    """The labels of ``qosClass`` and ``koordinatorPriority``; they override those of ``labels`` and mappings."""
    keeps_resources: bool
    """Matching objects keep their native resources."""
    problems: tuple[FieldError, ...]
    """Why the profile is not applied; empty for a usable profile."""
    warning: str
    """The same as a text."""

    @property
    def spec(self) -> ClusterColocationProfileSpec:
        return self.source.spec

    @property
    def is_usable(self) -> bool:
        return not self.warning

    def may_match_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether the object's labels match; a selector that cannot be read matches every object."""
        return not self.objects_readable or self.objects.matches(labels)

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        return not self.namespaces_readable or self.namespaces.matches(labels)


def compile_profile(profile: ClusterColocationProfile, patched: ObjectType) -> CompiledProfile:
    """Compile a profile. ``patched`` is the type of the objects that its patch is for."""
    spec = profile.spec
    objects, object_problems = compile_profile_selector(spec.selector, "spec.selector")
    namespaces, namespace_problems = compile_profile_selector(spec.namespace_selector, "spec.namespaceSelector")
    percent, percent_problem = parse_probability(spec.probability)
    patch_problem = _patch_problem(spec.patch, patched)
    others = (problem for problem in (percent_problem, patch_problem) if problem is not None)
    problems = (*namespace_problems, *object_problems, *others)
    patch = spec.patch if isinstance(spec.patch, dict) else None
    return CompiledProfile(
        source=profile,
        name=profile.metadata.name,
        objects=objects,
        namespaces=namespaces,
        objects_readable=not object_problems,
        namespaces_readable=not namespace_problems,
        percent=percent,
        patch=patch,
        apply_patch=compile_patch(patch, patched) if patch is not None and patch_problem is None else None,
        last_labels=_last_labels(spec),
        keeps_resources=SKIP_UPDATE_RESOURCES in profile.metadata.annotations,
        problems=problems,
        warning=_warning(profile.metadata.name, problems),
    )


def _last_labels(spec: ClusterColocationProfileSpec) -> Mapping[str, str]:
    last = {}
    if spec.qos_class:
        last[QOS_CLASS] = spec.qos_class
    if spec.koordinator_priority is not None:
        last[PRIORITY] = str(spec.koordinator_priority)
    return last


def _warning(name: str, problems: Sequence[FieldError]) -> str:
    if not problems:
        return ""
    return f'ClusterColocationProfile "{name}" is not applied: {"; ".join(map(str, problems))}'


def _patch_problem(patch: Any, patched: ObjectType) -> FieldError | None:
    """The error of an invalid patch. It is tried on an empty object: but for keys of merged lists, that fails as on any
    object."""
    if patch is None:
        return None
    allowed = f"must be a strategic merge patch of a {patched.name.rpartition('.')[2]}"
    if not isinstance(patch, dict):
        return FieldError.invalid("spec.patch", _shown(patch), f"{allowed}, which is an object")
    try:
        check_merge_keys(patch, patched)
        canonicalize(apply_strategic_patch({}, copied(patch), patched), patched)
    except (PatchError, WrongType) as error:
        return FieldError.invalid("spec.patch", _shown(patch), f"{allowed}: {error}")
    return None


def _shown(patch: Any) -> Any:
    """The patch, shortened to fit into a warning, of which clients see a few hundred characters."""
    text = encode(patch).decode()
    return patch if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
