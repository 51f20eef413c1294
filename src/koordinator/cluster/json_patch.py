"""RFC 6902 as the real server's library applies it (evanphx/json-patch), with its leniency and its words.

It differs from the standard where clients have come to rely on it: ``replace`` sets a field that is not there, ``test``
for null holds for an absent field, and negative indexes count from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied, same
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.errors import ApiError, bad_request, too_large
from koordinator.cluster.limits import MAX_BODY, MAX_PATCH_OPERATIONS, TOO_DEEP, is_too_deep
from koordinator.cluster.strategy.json_syntax import json_kind

_MISSING: Final = "missing value"
_BAD_INDEX: Final = "invalid index referenced"
_ABSENT: Final = object()
_encode: Final = msgspec.json.Encoder().encode


class OperationError(KoordinatorError):
    """An operation that does not apply; none of its patch does."""


def apply_operations(document: Any, operations: list[Any]) -> Any:
    """The patched document; ``document`` is left as it is. Raises OperationError, for one that grows too large, too."""
    patched, copies = copied(document), 0
    try:
        for operation in operations:
            kind = operation.get("op") if isinstance(operation, dict) else None
            apply = _OPERATIONS.get(kind) if isinstance(kind, str) else None
            if apply is None:
                raise OperationError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
            if kind == "copy":
                copies += _copied_size(patched, operation)
                if copies > MAX_BODY:
                    what = "Unable to complete the copy, the accumulated size increase of copy is"
                    raise OperationError(f"{what} {copies}, exceeding the limit {MAX_BODY}")
            patched = apply(patched, operation)
    except RecursionError as error:
        raise OperationError(TOO_DEEP) from error
    if is_too_deep(patched):
        raise OperationError(TOO_DEEP)
    return patched


def _add(document: Any, operation: dict[str, Any]) -> Any:
    path = _text(operation, "path", "add operation failed to decode path: missing value")
    container, key = _find(document, path)
    if container is None:
        raise OperationError(f'add operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _insert(container, key, copied(operation.get("value")), f"error in add for path: '{path}'")
    return document


def _remove(document: Any, operation: dict[str, Any]) -> Any:
    path = _text(operation, "path", "remove operation failed to decode path: missing value")
    container, key = _find(document, path)
    if container is None:
        raise OperationError(f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _take_away(container, key, f"error in remove for path: '{path}'")
    return document


def _replace(document: Any, operation: dict[str, Any]) -> Any:
    path = _text(operation, "path", "replace operation failed to decode path: operation missing path field")
    value = copied(operation.get("value"))
    if path == "":
        if not isinstance(value, (dict, list)):
            raise OperationError("replace operation value must be object or array")
        return value
    container, key = _find(document, path)
    if container is None:
        raise OperationError(f"replace operation does not apply: doc is missing path: {path}: {_MISSING}")
    if isinstance(container, list) and _index(key, len(container)) is None:
        raise OperationError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}")
    _set(container, key, value)
    return document


def _test(document: Any, operation: dict[str, Any]) -> Any:
    path = _text(operation, "path", "test operation failed to decode path: operation missing path field")
    found = document
    if path:
        container, key = _find(document, path)
        if container is None:
            raise OperationError(f"test operation does not apply: is missing path: {path}: {_MISSING}")
        found = _get(container, key, f"error in test for path: '{path}'")
    if not same(found, operation.get("value")):
        raise OperationError(f"testing value {path} failed: test failed")
    return document


def _move(document: Any, operation: dict[str, Any]) -> Any:
    source = _text(operation, "from", "move operation failed to decode from: operation, missing from field")
    container, key = _find(document, source)
    if container is None:
        raise OperationError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
    value = _get(container, key, f"error in move for path: '{key}'")
    _take_away(container, key, f"error in move for path: '{key}'")
    return _place(document, operation, value, "move", lambda path: f"error in move for path: '{path}'")


def _copy(document: Any, operation: dict[str, Any]) -> Any:
    value = copied(_source_of_copy(document, operation))
    return _place(document, operation, value, "copy", lambda path: "error while adding value during copy")


def _source_of_copy(document: Any, operation: dict[str, Any]) -> Any:
    source = _text(operation, "from", "copy operation failed to decode from: operation, missing from field")
    container, key = _find(document, source)
    if container is None:
        raise OperationError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
    return _get(container, key, f"error in copy for from: '{source}'")


def _copied_size(document: Any, operation: dict[str, Any]) -> int:
    """Bytes of JSON, counted before they are copied: copies of copies double a document every time."""
    return len(_encode(_source_of_copy(document, operation)))


def _place(document: Any, operation: dict[str, Any], value: Any, verb: str, problem: Callable[[str], str]) -> Any:
    path = _text(operation, "path", f"{verb} operation failed to decode path: operation missing path field")
    container, key = _find(document, path)
    if container is None:
        raise OperationError(f"{verb} operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    _insert(container, key, value, problem(path))
    return document


_OPERATIONS: Final[dict[str, Callable[[Any, dict[str, Any]], Any]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
    "move": _move,
    "copy": _copy,
}


def _text(operation: dict[str, Any], name: str, problem: str) -> str:
    value = operation.get(name)
    if isinstance(value, str):
        return value
    raise OperationError(problem)


def _find(document: Any, path: str) -> tuple[Any, str]:
    """The object or list that holds the last step of a JSON pointer, and that step; (None, …) when it is not there."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]
    if len(steps) < 2:
        return None, ""
    container = document
    for step in steps[1:-1]:
        if isinstance(container, list):
            at = _index(step, len(container))
            container = None if at is None else container[at]
        else:
            container = container.get(step)
        if not isinstance(container, (dict, list)):
            return None, ""
    return container, steps[-1]


def _index(key: str, length: int) -> int | None:
    """A position within a list; None for what is none."""
    try:
        index = int(key)
    except ValueError:
        return None
    index += length if index < 0 else 0
    return index if 0 <= index < length else None


def _checked_index(key: str, length: int, problem: str) -> int:
    index = _index(key, length)
    if index is not None:
        return index
    try:
        number = int(key)
    except ValueError as error:
        raise OperationError(f'{problem}: strconv.Atoi: parsing "{key}": invalid syntax') from error
    raise OperationError(f"{problem}: Unable to access invalid index: {number}: {_BAD_INDEX}")


def _get(container: Any, key: str, problem: str) -> Any:
    """The value there; None for a field that is absent, as for one that is null."""
    if isinstance(container, list):
        return container[_checked_index(key, len(container), problem)]
    return container.get(key)


def _set(container: Any, key: str, value: Any) -> None:
    if isinstance(container, list):
        container[_checked_index(key, len(container), "")] = value
    else:
        container[key] = value


def _insert(container: Any, key: str, value: Any, problem: str) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        try:
            int(key)
        except ValueError as error:
            why = f"value was not a proper array index: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax"
            raise OperationError(f"{problem}: {why}") from error
        container.insert(_checked_index(key, len(container) + 1, problem), value)


def _take_away(container: Any, key: str, problem: str) -> None:
    if isinstance(container, list):
        del container[_checked_index(key, len(container), problem)]
    elif container.pop(key, _ABSENT) is _ABSENT:
        raise OperationError(f"{problem}: Unable to remove nonexistent key: {key}: {_MISSING}")


# RFC 6902 (``application/json-patch+json``).


_FIELDS: Final = ("op", "path", "from")
_REJECTED: Final = "the server rejected our request due to an error in our request"


def apply_json_patch(original: Document, operations: list[Any]) -> Document:
    """All operations or none.

    Raises ApiError: 400 for what is no list of operations, 413 for too many and 422 for one that does not apply.
    """
    _check_types(operations)
    if len(operations) > MAX_PATCH_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_PATCH_OPERATIONS}, got {len(operations)}"
        raise too_large(limit)
    try:
        patched = apply_operations(original, operations)
    except OperationError as error:
        # The real server hides why; the reason costs nothing and saves a search.
        raise ApiError(422, "Invalid", f"{_REJECTED}: {error}", {}) from error
    if not isinstance(patched, dict):
        raise ApiError(422, "Invalid", _REJECTED, {})
    return patched


def _check_types(operations: list[Any]) -> None:
    """Raises ApiError 400 as the real server's decoder of operations does."""
    for operation in operations:
        wrong = _wrong_type(operation)
        if wrong:
            raise bad_request(f"error decoding patch: json: cannot unmarshal {wrong}")


def _wrong_type(operation: Any) -> str:
    if operation is None:
        return ""
    if not isinstance(operation, dict):
        return f"{json_kind(operation)} into Go value of type handlers.jsonPatchOp"
    for field in _FIELDS:
        value = operation.get(field)
        if value is not None and not isinstance(value, str):
            return f"{json_kind(value)} into Go struct field jsonPatchOp.{field} of type string"
    return ""
