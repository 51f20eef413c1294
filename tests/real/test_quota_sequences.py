"""Random trees of quotas, grown and cut back in front of the original's webhooks and of ours."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from koordinator.api.document import Document
from koordinator.manager.webhook.quota_accounts import quota_summary
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench, versioned
from tests.manager.webhook.reviews import answered
from tests.model.quota_tree.quota_objects import P
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.quota_cases import Step
from tests.real.quota_programs import Programs, body_of, both_programs, decision, filled, patched, quota_cluster
from tests.real.quota_sequences import QuotaSequence

_STEPS = 700
_REQUESTED_AGAIN = 60
_RULES = (
    "already exist",
    "already bound to quota",
    "quota.Spec.Max's value < 0",
    "not included in max",
    "> max",
    "< used",
    "tree id changed",
    "tree id is different from parent",
    "isParent is forbidden to modify as false",
    "but not find parentInfo",
    "IsParent is false",
    "max keys are not",
    "min keys are not",
    "brothers' MinQuota",
    "children's MinQuota",
    "child quotas",
    "child pods",
)
"""Each is broken in every sequence; else it would prove little."""
GATES = (
    "",
    "ElasticQuotaGuaranteeUsage=true,ElasticQuotaEnableUpdateResourceKey=true",
    "ElasticQuotaGuaranteeUsage=true,SupportParentQuotaSubmitPod=true",
    "DisableDefaultQuota=true",
)


class LateWatch:
    """Brings what was accepted to our program some time later, in order."""

    def __init__(self, bench: QuotaBench, seed: int) -> None:
        self._bench = bench
        self._random = Random(seed)
        self._late: deque[tuple[Step, Document]] = deque()
        self._version = 1

    def stored(self, step: Step, document: Document) -> Document:
        """The document as it is stored."""
        self._version += 1
        document = versioned(document, self._version)
        self._late.append((step, document))
        return document

    def bring(self, *, everything: bool = False) -> None:
        while self._late and (everything or self._random.random() < 0.6):
            step, document = self._late.popleft()
            if step.operation == "DELETE":
                self._bench.observe_deletion(document)
            else:
                self._bench.observe(document)


@pytest.fixture(scope="module")
def plane(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with quota_cluster(real_programs, tmp_path_factory.mktemp("control-plane")) as cluster:
        yield cluster


@pytest.mark.parametrize("gates", GATES, ids=lambda gates: gates or "defaults")
def test_random_changes_are_answered_as_the_original_does(
    real_programs: RealPrograms, plane: ControlPlane, tmp_path: Path, gates: str
) -> None:
    seed = GATES.index(gates)
    sequence, refusals, allowed = QuotaSequence(seed), list[str](), 0
    with both_programs(real_programs, plane, tmp_path, gates) as programs:
        watch = LateWatch(programs.bench, seed)
        for _ in range(_STEPS):
            step = sequence.next()
            watch.bring(everything=step.operation == "CREATE" and _name(step) in sequence.quotas)
            response = _same_response(programs, step)
            if response["allowed"]:
                allowed += 1
                _store(sequence, watch, step, response)
            else:
                refusals.append(response["status"]["message"])
        watch.bring(everything=True)
        _assert_same_tree(programs)
    assert sequence.depth() >= 3
    assert _STEPS / 2 < allowed < _STEPS
    assert not [rule for rule in _RULES if not any(rule in refusal for refusal in refusals)]


def _name(step: Step) -> str:
    return str((step.object or step.old or {})["metadata"]["name"])


def _same_response(programs: Programs, step: Step) -> Document:
    """Our response, which is one that the original may give: it takes children and resources in any order."""
    ours, original = programs.send(step)
    expected = decision(ours, words=step.same_words)
    for _ in range(_REQUESTED_AGAIN):
        if decision(original, words=step.same_words) == expected or ours["allowed"] or original["allowed"]:
            break
        original = answered(programs.original.send(step.path, body_of(step)))
    assert (expected, _filled(step, ours)) == (
        decision(original, words=step.same_words),
        _filled(step, original),
    ), step
    return ours


def _filled(step: Step, response: Document) -> Document | None:
    return filled(step, response) if step.path.startswith("/mutate") else None


def _store(sequence: QuotaSequence, watch: LateWatch, step: Step, response: Document) -> None:
    if step.path.startswith("/mutate") or step.path.endswith("-pod"):
        sequence.accepted(step, patched(step, response))
    elif step.operation != "UPDATE" or _counts(step):
        sequence.accepted(step, watch.stored(step, step.object or step.old or {}))


def _counts(step: Step) -> bool:
    """Whether both take note of the update when they are queried, and not only when it is stored."""
    assert step.object is not None
    assert step.old is not None
    return _counted(step.object) != _counted(step.old)


def _counted(document: Document) -> tuple[object, ...]:
    labels, annotations = (document["metadata"].get(key) or {} for key in ("labels", "annotations"))
    texts = [labels.get(f"{P}/{key}", "") for key in ("parent", "is-parent", "tree-id")]
    return (document["spec"], *texts, annotations.get(f"{P}/namespaces", ""))


def _assert_same_tree(programs: Programs) -> None:
    original = json.loads(programs.original.send("/elasticQuota"))
    ours = quota_summary(programs.bench.quotas.tree())
    assert ours["quotaInfoMap"] == original["quotaInfoMap"]
    children = {name: sorted(found) for name, found in original["quotaHierarchyInfo"].items() if found}
    assert {name: found for name, found in ours["quotaHierarchyInfo"].items() if found} == children
