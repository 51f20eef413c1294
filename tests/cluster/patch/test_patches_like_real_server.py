"""Each patch gives what the real server gave, or is refused with the same words."""

from __future__ import annotations

import copy
import json

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, invalid
from koordinator.cluster.patch import apply_patch
from tests.cluster.corpus import MEDIA_TYPES, admitted, comparable, context, recorded, resource_of, written

RECORDED = recorded("patch/patches.json")
CASES = list(zip(written("patch/patches.yaml")[0]["patches"], RECORDED["results"], strict=True))


def _response(case: Document) -> Document:
    old = RECORDED["objects"][case["object"]]
    resource = resource_of(old)
    body = json.dumps(case["patch"]).encode()
    try:
        new = copy.deepcopy(apply_patch(MEDIA_TYPES[case["type"]], old, body, resource))
        strategy = resource.strategy
        strategy.decode(new)
        if "sub" in case:
            strategy.prepare_status_update(new, copy.deepcopy(old), context())
        else:
            admitted(new, copy.deepcopy(old))
        causes = strategy.validate(new, old)
    except ApiError as error:
        return error.status()
    return invalid(resource, old["metadata"]["name"], causes).status() if causes else new


@pytest.mark.parametrize(("case", "real"), CASES, ids=lambda value: json.dumps(value.get("patch", ""))[:70])
def test_patch(case: Document, real: Document) -> None:
    ours = _response(case)
    if real["kind"] != "Status":
        assert comparable(ours) == comparable(real)
    elif "does not match the name on the URL" in real["message"]:
        # Found by the verb before the strategy is called; here the strategy is the second line of defence.
        assert ours["code"] == 422
    elif real["message"].startswith(' "" is invalid: patch'):
        # The real server repeats the whole object in this message.
        assert real["message"].endswith(ours["message"].partition(": ")[2])
    else:
        # Longer messages differ by intention: the changed fields of a pod, the reason of a JSON patch.
        shared = real["message"].partition("\n@@")[0].strip()
        assert (ours["code"], ours["message"][: len(shared)]) == (real["code"], shared)


def test_patch_leaves_the_original_alone() -> None:
    for case, _ in CASES:
        before = copy.deepcopy(RECORDED["objects"][case["object"]])
        _response(case)
        assert RECORDED["objects"][case["object"]] == before
