"""Rules and selectors without a server: against a plain restatement of the contract, and what is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.configuration import MUTATING, Followed, Webhook, webhooks_of
from koordinator.cluster.admission_webhooks.matching import Candidates
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Registry, RequestContext
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.verbs.environment import Attributes, Operation
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.selection import compile_selector
from koordinator.cluster.verbs.target import Target
from tests.cluster.corpus import context
from tests.cluster.embedded import Verbs
from tests.examples import examples

_OPERATIONS: list[Operation] = ["CREATE", "UPDATE", "DELETE"]


def _some(*texts: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(texts), min_size=1, max_size=3)


_RULES = st.fixed_dictionaries(
    {
        "operations": _some("*", *_OPERATIONS),
        "apiGroups": _some("*", "", "apps"),
        "apiVersions": _some("*", "v1", "v1beta1"),
        "resources": _some("*", "*/*", "*/status", "pods", "pods/*", "pods/status", "nodes", "namespaces"),
        "scope": st.sampled_from(("*", "Cluster", "Namespaced")),
    }
)


def _webhook(name: str, *rules: Document, **fields: object) -> Webhook:
    document = {"name": name, "clientConfig": {"url": "https://a"}, "rules": list(rules), **fields}
    return Webhook.parse(document, name)


def _candidates(*webhooks: Webhook, registry: Registry | None = None) -> tuple[Candidates, Followed[Sequence[Webhook]]]:
    registry = registry or Registry(BUILTIN_RESOURCES)
    configurations = Followed(MemoryStorage(), registry, MUTATING, webhooks_of, set())
    configurations.objects = (webhooks,)
    return Candidates(configurations, registry), configurations


def _attributes(operation: Operation, plural: str, subresource: str = "", *, group: str = "") -> Attributes:
    target = msgspec.structs.replace(Verbs().target(plural, "a", group=group), subresource=subresource)
    obj: Document = {"metadata": {"name": "a"}}
    return Attributes(operation, target, obj, None, _context(), WriteOptions())


def _context() -> RequestContext:
    return context()


def _named(items: list[str], wanted: str) -> bool:
    return "*" in items or wanted in items


def _expected(rule: Document, operation: str, plural: str, subresource: str) -> bool:
    """The contract as Kubernetes' documentation states it."""
    requested = {plural, "*"} if not subresource else {f"{plural}/{subresource}", f"*/{subresource}"}
    covering = {f"{plural}/*", "*/*"}
    cluster_scoped = plural in ("nodes", "namespaces")
    return (
        _named(rule["operations"], operation)
        and _named(rule["apiGroups"], "")
        and _named(rule["apiVersions"], "v1")
        and bool(set(rule["resources"]) & (requested | covering))
        and rule["scope"] in ("*", "Cluster" if cluster_scoped else "Namespaced")
    )


@given(_RULES, st.sampled_from(_OPERATIONS), st.sampled_from(("pods", "nodes", "namespaces")), st.booleans())
def test_a_rule_matches_what_the_contract_says(rule: Document, operation: Operation, plural: str, status: bool) -> None:
    subresource = "status" if status else ""
    candidates, _ = _candidates(_webhook("a.example.com", rule))
    found = candidates.of(_attributes(operation, plural, subresource))
    assert bool(found) == _expected(rule, operation, plural, subresource)


@settings(max_examples=examples(30))
@given(st.lists(_RULES, max_size=4), st.lists(_RULES, max_size=4))
def test_what_is_remembered_is_forgotten_with_the_configurations(before: list[Document], after: list[Document]) -> None:
    attributes = _attributes("CREATE", "pods")
    candidates, configurations = _candidates(*(_webhook("a.example.com", rule) for rule in before))
    candidates.of(attributes)
    configurations.objects = (tuple(_webhook("b.example.com", rule) for rule in after),)
    fresh, _ = _candidates(*configurations.objects[0])
    assert [found.webhook for found in candidates.of(attributes)] == [found.webhook for found in fresh.of(attributes)]


def test_a_version_that_is_served_later_is_equivalent_from_then_on() -> None:
    registry = Registry(BUILTIN_RESOURCES)
    pods = registry.stored["", "pods"]
    assert pods is not None
    webhook = _webhook(
        "a.example.com", {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v2"], "resources": ["*"]}
    )
    candidates, _ = _candidates(webhook, registry=registry)
    attributes = msgspec.structs.replace(_attributes("CREATE", "pods"), target=Target(pods, "default", "a"))
    assert not candidates.of(attributes)
    registry.add(replace(pods, version="v2", storage_version=False))
    assert [found.resource.version for found in candidates.of(attributes)] == ["v2"]


def test_of_several_equivalent_versions_the_one_that_an_earlier_rule_names_is_sent() -> None:
    registry = Registry(BUILTIN_RESOURCES)
    pods = registry.stored["", "pods"]
    assert pods is not None
    for version in ("v2", "v3"):
        registry.add(replace(pods, version=version, storage_version=False))
    rules = [
        {"operations": ["*"], "apiGroups": [""], "apiVersions": [version], "resources": ["*"]}
        for version in ("v3", "v2")
    ]
    candidates, _ = _candidates(_webhook("a.example.com", *rules), registry=registry)
    attributes = msgspec.structs.replace(_attributes("CREATE", "pods"), target=Target(pods, "default", "a"))
    assert [found.resource.version for found in candidates.of(attributes)] == ["v3"]


def test_configurations_of_webhooks_are_never_candidates() -> None:
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    candidates, _ = _candidates(_webhook("a.example.com", everything))
    assert not candidates.of(_attributes("CREATE", MUTATING, group="admissionregistration.k8s.io"))


_KEYS = st.sampled_from("abc")
_LABELS = st.dictionaries(_KEYS, st.sampled_from(("x", "y")))
_REQUIREMENTS = st.one_of(
    st.fixed_dictionaries({"key": _KEYS, "operator": st.sampled_from(("In", "NotIn")), "values": _some("x", "y", "z")}),
    st.fixed_dictionaries({"key": _KEYS, "operator": st.sampled_from(("Exists", "DoesNotExist"))}),
)


@given(_LABELS, _REQUIREMENTS)
def test_an_operator_and_its_opposite_divide_all_labels(labels: dict[str, str], requirement: Document) -> None:
    opposites = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    matcher = compile_selector({"matchExpressions": [requirement]})
    opposite = compile_selector({"matchExpressions": [{**requirement, "operator": opposites[requirement["operator"]]}]})
    assert matcher is not None
    assert opposite is not None
    assert matcher(labels) != opposite(labels)


@settings(max_examples=examples(30))
@given(_LABELS, _LABELS, st.lists(_REQUIREMENTS, max_size=3))
def test_a_selector_is_the_conjunction_of_its_parts(
    labels: dict[str, str], wanted: dict[str, str], requirements: list[Document]
) -> None:
    parts: list[Document] = [{"matchLabels": {key: value}} for key, value in wanted.items()]
    parts += [{"matchExpressions": [requirement]} for requirement in requirements]
    matchers = [compile_selector(part) for part in parts]
    whole = compile_selector({"matchLabels": wanted, "matchExpressions": requirements})
    assert (whole is None or whole(labels)) == all(matcher is None or matcher(labels) for matcher in matchers)
