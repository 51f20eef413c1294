"""The compiled engine makes of any pod what the plain one makes of it, and leaves what was sent as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import jsonpatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import named
from koordinator.manager.webhook.colocation_profile.changes import ProfileError
from koordinator.manager.webhook.colocation_profile.compiled import compile_profile
from koordinator.manager.webhook.colocation_profile.compiled_patch import compile_patch
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler, PodMutationSettings
from koordinator.manager.webhook.review import make_patch
from koordinator.model.patch.errors import PatchError
from koordinator.model.patch.strategic import apply_strategic_patch
from tests.examples import examples
from tests.manager.webhook.colocation_profile.reference import POD, expected_pod
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, profile, request_for

KEYS = st.sampled_from(["app", "team", "kind", "koordinator.sh/priority"])
VALUES = st.sampled_from(["a", "b", ""])
TEXTS = st.dictionaries(KEYS, VALUES, max_size=3)
NAMES = st.sampled_from(["main", "sidecar", "other"])
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "500m", 2]),
        "memory": st.just("1Gi"),
        "kubernetes.io/batch-cpu": st.just("5"),
    },
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
ENVIRONMENT = st.lists(st.fixed_dictionaries({"name": NAMES, "value": VALUES}), max_size=3)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"resources": RESOURCES, "env": ENVIRONMENT}), max_size=3
)
PODS = st.fixed_dictionaries(
    {
        "kind": st.just("Pod"),
        "metadata": st.fixed_dictionaries({"name": st.just("pod")}, optional={"labels": TEXTS, "annotations": TEXTS}),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS,
                "overhead": AMOUNTS,
                "priority": st.sampled_from([5500, 7500, 9500]),
                "preemptionPolicy": st.just("Never"),
                "nodeSelector": TEXTS,
            },
        ),
    }
)
EXPRESSIONS = st.lists(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    )
    | st.builds(
        lambda key, operator: {"key": key, "operator": operator}, KEYS, st.sampled_from(["Exists", "DoesNotExist"])
    ),
    max_size=2,
)
SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": st.dictionaries(KEYS, VALUES, max_size=2), "matchExpressions": EXPRESSIONS}
)
NAMESPACE_SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": st.just({"enable-koordinator-colocation": "true"}) | st.just({"no": "such"})}
)
PATCHED_TEXTS = st.dictionaries(KEYS, VALUES | st.none(), max_size=2)
PATCHED_ELEMENTS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={"env": ENVIRONMENT, "image": VALUES | st.none(), "$patch": st.just("delete"), "ports": st.just([])},
)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"labels": PATCHED_TEXTS, "annotations": PATCHED_TEXTS}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(PATCHED_ELEMENTS, max_size=3) | st.just([{"$patch": "replace"}]),
                "$setElementOrder/containers": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
                "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), max_size=2) | st.none(),
                "nodeSelector": PATCHED_TEXTS | st.just({"$patch": "replace", "new": "yes"}) | st.none(),
                "$retainKeys": st.just(["containers"]),
            },
        ),
    },
)
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "selector": SELECTORS,
        "namespaceSelector": NAMESPACE_SELECTORS,
        "labels": TEXTS,
        "annotations": TEXTS,
        "labelKeysMapping": st.dictionaries(KEYS, KEYS, max_size=2),
        "annotationKeysMapping": st.dictionaries(KEYS, KEYS, max_size=2),
        "labelSuffixes": st.dictionaries(KEYS, VALUES, max_size=2),
        "qosClass": st.just("BE"),
        "schedulerName": st.just("koord-scheduler"),
        "koordinatorPriority": st.sampled_from([0, 7]),
        "priorityClassName": st.sampled_from(["koordinator-batch", "koordinator-prod", "none-such"]),
        "probability": st.sampled_from([0, 50, 99]),
        "patch": PATCHES,
    },
)
ONLY_PROFILES = PodMutationSettings(record_extended_resources=False, normalise_device_resources=False)


def text(value: Any) -> str:
    """With the types of numbers; the order of keys says nothing."""
    return json.dumps(value, sort_keys=True)


def outcome(make: Callable[[], Document]) -> str:
    try:
        return text(make())
    except ProfileError as error:
        # Ours tells apart what depends on an object that is not known yet.
        return f"ProfileError: {error}"
    except PatchError as error:
        return f"PatchError: {error}"


def usable(spec: Document) -> bool:
    return not compile_profile(SmallCluster(profile(**spec)).profiles[0], POD).warning


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(PODS, st.lists(PROFILES.filter(usable), max_size=6), st.integers(0, 99))
def test_any_pod_becomes_what_the_plain_engine_makes_of_it(pod: Document, specs: list[Document], seed: int) -> None:
    cluster = SmallCluster(*(profile(f"profile-{9 - number}", **spec) for number, spec in enumerate(specs)))
    sent = copied(pod)

    def draws() -> Callable[[], int]:
        random = Random(seed)
        return lambda: random.randrange(100)

    def changed() -> Document:
        handler = PodMutatingHandler(cluster, NoQuotaTrees(), draws(), ONLY_PROFILES)
        response = handler.handle(request_for(pod))
        assert not response.warnings
        if response.changed is None:
            return pod
        applied: Document = jsonpatch.apply_patch(sent, make_patch(pod, response.changed))
        assert text(applied) == text(response.changed)
        return response.changed

    assert outcome(changed) == outcome(lambda: expected_pod(cluster, sent, "default", draws()))
    assert text(pod) == text(sent)


@settings(max_examples=examples(300), deadline=None)
@given(PODS, PATCHES)
def test_a_compiled_patch_does_what_the_patch_does(pod: Document, patch: Document) -> None:
    compiled, kept = compile_patch(patch, POD), copied(patch)
    expected = outcome(lambda: apply_strategic_patch(copied(pod), copied(patch), POD))
    for _ in range(2):
        assert outcome(lambda: compiled(copied(pod))) == expected
    assert patch == kept


def test_objects_share_nothing_of_a_patch() -> None:
    compiled = compile_patch({"spec": {"tolerations": [{"key": "a"}]}}, named("io.k8s.api.core.v1.Pod"))
    first, second = compiled({}), compiled({})
    first["spec"]["tolerations"][0]["key"] = "b"
    assert second == {"spec": {"tolerations": [{"key": "a"}]}}
