"""Whether a value fits its schema: closures that answer yes or no, made once for each schema.

A compiled schema is a mapping from the type of a value to a question about it (None: nothing to ask). Who holds the
value looks the question up, so that a scalar without keywords, which most are, costs no call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from koordinator.cluster.structural_schema.keywords import (
    Keyword,
    in_enum,
    is_whole,
    of_format,
    of_lists,
    of_numbers,
    of_objects,
    of_strings,
)
from koordinator.cluster.structural_schema.node import Node

Question = Callable[[Any], object]
Questions = Mapping[type, Question | None]
KINDS: Final[Mapping[type, str]] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def never(value: Any) -> bool:
    return False


def accepts(questions: Questions, value: Any) -> bool:
    """The answer for one value."""
    question = questions.get(type(value), never)
    return question is None or bool(question(value))


def questions_of(node: Node) -> Questions:
    """Compile a schema."""
    asked: dict[type, Question | None] = {}
    if takes_null(node) and not node.enum:
        asked[type(None)] = None
    junctors = {id(part): questions_of(part) for part in node.junctors}
    for kind in KINDS:
        if (typed := type_question(node, kind)) is not never:
            question = _all([typed, *_of_kind(node, kind), *_junctors(node, kind, junctors)])
            if question is not never:
                asked[kind] = question
    return asked


def takes_null(node: Node) -> bool:
    return node.nullable or not node.types


def type_question(node: Node, kind: type) -> Question | None:
    """Whether values of a Python type fit the schema's: None for all, ``never`` for none."""
    name = KINDS[kind]
    if (not node.types and not node.format) or name in node.types or (kind is int and "number" in node.types):
        return None
    # A format says that texts and lists fit, whatever the type; so the real server has it.
    numeric = "number" in node.types or "integer" in node.types
    if node.format and not numeric and kind in (str, list):
        return None
    return is_whole if kind is float and "integer" in node.types else never


def _of_kind(node: Node, kind: type) -> list[Question]:
    if kind is str:
        return _holding([*of_strings(node), *of_format(node)])
    if kind in (int, float):
        return _holding(of_numbers(node, whole=kind is int))
    if kind is list:
        return [*_items(node), *_holding(of_lists(node))]
    if kind is dict:
        return [*_holding(of_objects(node)), *_members(node)]
    return []


def _holding(keywords: list[Keyword]) -> list[Question]:
    return [keyword.holds for keyword in keywords]


def _items(node: Node) -> list[Question]:
    if node.items is None:
        return []
    asked = questions_of(node.items)
    if all(asked.get(kind, never) is None for kind in (*KINDS, type(None))):
        return []

    def fit(items: list[Any]) -> bool:
        for item in items:
            question = asked.get(type(item), never)
            if question is not None and not question(item):
                return False
        return True

    return [fit]


def _members(node: Node) -> list[Question]:
    known = {name: questions_of(part) for name, part in node.properties.items()}
    rest: Questions | None = None
    if node.additional is False:
        rest = {}
    elif (additional := node.additional_node) is not None:
        rest = questions_of(additional)
    questions: list[Question] = []
    if node.required:
        required = frozenset(node.required)
        questions.append(lambda obj: required <= obj.keys())
    if known or rest is not None:
        questions.append(_members_fit(known, rest))
    return questions


def _members_fit(known: Mapping[str, Questions], rest: Questions | None) -> Question:
    def fit(obj: dict[str, Any]) -> bool:
        for name, value in obj.items():
            asked = known.get(name, rest)
            if asked is not None:
                question = asked.get(type(value), never)
                if question is not None and not question(value):
                    return False
        return True

    return fit


def _junctors(node: Node, kind: type, asked: Mapping[int, Questions]) -> list[Question | None]:
    """What ``allOf``, ``anyOf``, ``oneOf`` and ``not`` ask of values of one type; most of it is known beforehand.

    ``asked`` holds the questions of each of their schemas.
    """

    def of(parts: Sequence[Node]) -> list[Question | None]:
        return [asked[id(part)].get(kind, never) for part in parts]

    questions = of(node.all_of)
    if node.any_of:
        questions.append(_any(of(node.any_of)))
    if node.one_of:
        questions.append(_one(of(node.one_of)))
    if node.negated is not None:
        questions.append(_not(of((node.negated,))[0]))
    if node.enum:
        questions.append(lambda value: in_enum(node, value))
    return questions


def _any(questions: list[Question | None]) -> Question | None:
    asked = [question for question in questions if question is not never]
    if None in asked:
        return None
    if len(asked) < 2:
        return asked[0] if asked else never
    return lambda value: any(question(value) for question in asked if question is not None)


def _one(questions: list[Question | None]) -> Question | None:
    certain = questions.count(None)
    asked = [question for question in questions if question is not None and question is not never]
    if not asked:
        return None if certain == 1 else never
    return lambda value: certain + sum(bool(question(value)) for question in asked) == 1


def _not(question: Question | None) -> Question | None:
    if question is None:
        return never
    return None if question is never else lambda value: not question(value)


def _all(questions: list[Question | None]) -> Question | None:
    asked = [question for question in questions if question is not None]
    if never in asked:
        return never
    if len(asked) < 2:
        return asked[0] if asked else None
    if len(asked) == 2:
        first, second = asked
        return lambda value: first(value) and second(value)
    return lambda value: all(question(value) for question in asked)
