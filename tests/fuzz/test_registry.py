"""Nothing is read from outside that no test breaks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api import annotations as keys
from koordinator.api import kinds
from koordinator.api.kinds import Kind
from koordinator.manager.recommender.limit_ranges import LIMIT_RANGES
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS
from koordinator.model.overcommit.node_report import NODE_REPORTS
from tests.fuzz.readers import BROKEN_BY, KINDS, OF_THEIR_OWN
from tests.fuzz.reading_calls import kinds_of_informers, modules_that_decode
from tests.fuzz.sound_objects import ANNOTATIONS, ONLY_WRITTEN

_TESTS: Final = Path(__file__).parents[1]
_OTHER_KINDS: Final[dict[str, Kind[Any]]] = {
    "LIMIT_RANGES": LIMIT_RANGES,
    "OBSERVED_PODS": OBSERVED_PODS,
    "NODE_REPORTS": NODE_REPORTS,
}
_OF_WEBHOOKS: Final = frozenset({"priorityclasses"})
"""Watched for the webhooks alone."""


def test_each_module_that_decodes_is_entered_once() -> None:
    entered = [*OF_THEIR_OWN, *(module for modules in BROKEN_BY.values() for module in modules)]
    assert sorted(entered) == sorted(modules_that_decode())
    assert [module for module, times in Counter(entered).items() if times > 1] == []


def test_the_tests_are_there() -> None:
    assert [path for path in BROKEN_BY if not (_TESTS / path).is_file()] == []


@pytest.mark.parametrize("program", KINDS)
def test_each_kind_that_an_informer_is_made_of_is_entered(program: str) -> None:
    names = kinds_of_informers(program)
    found: list[Kind[Any]] = [_OTHER_KINDS[name] if name in _OTHER_KINDS else getattr(kinds, name) for name in names]
    plurals = {kind.plural for kind in found}
    assert plurals <= KINDS[program] | (_OF_WEBHOOKS if program == "manager" else frozenset())


def test_each_annotation_has_a_sound_value_to_be_broken() -> None:
    known = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    given = {key for table in ANNOTATIONS.values() for key in table}
    assert known == given | ONLY_WRITTEN.keys()
    assert not given & ONLY_WRITTEN.keys()
