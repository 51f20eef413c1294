"""Where certificates are kept: made when absent, renewed when bad, one for all replicas."""

from __future__ import annotations

import asyncio
import base64
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import NAMESPACES, SECRETS
from koordinator.base.clock import ManualClock
from koordinator.kube.errors import ApiStatusError
from koordinator.manager.missing import NotInstalledError
from koordinator.manager.webhook.certificate_files import from_files, to_files, write_files
from koordinator.manager.webhook.certificate_writers import FileWriter, SecretWriter
from koordinator.manager.webhook.certificates import Certificates, fault
from tests.in_memory_api import ApiRequest, InMemoryApi
from tests.manager.webhook.making import NAME, NOW, certificates, reuse_keys

OLD = NOW + timedelta(days=3650 - 100)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    reuse_keys(monkeypatch)


def writer(api: InMemoryApi) -> SecretWriter:
    return SecretWriter(api.client(), "system", "certificates", NAME, api.clock)


def holding(held: Certificates, now: datetime = NOW, **more: Any) -> InMemoryApi:
    """An API server that has the Secret."""
    api = InMemoryApi(ManualClock(now))
    data = {name: base64.b64encode(content).decode() for name, content in to_files(held).items()}
    metadata = {"name": "certificates", "namespace": "system", "labels": {"mine": "yes"}}
    api.put(SECRETS, {"metadata": metadata, "type": "Opaque", "data": data, **more})
    return api


def secret(api: InMemoryApi) -> dict[str, Any]:
    return api.document(SECRETS, "certificates", "system")


def stored(api: InMemoryApi) -> Certificates:
    return from_files({name: base64.b64decode(text) for name, text in secret(api)["data"].items()})


def writes_requested(api: InMemoryApi) -> list[str]:
    return [request.verb for request in api.requests if request.verb != "get"]


def test_without_a_secret_one_is_made() -> None:
    api = InMemoryApi(ManualClock(NOW))
    api.put(NAMESPACES, {"metadata": {"name": "system"}})
    made = asyncio.run(writer(api).ensure())
    assert stored(api) == made
    assert fault(made, NAME, NOW) == ""


def test_a_namespace_that_does_not_exist_is_named_with_the_command_that_makes_it() -> None:
    with pytest.raises(NotInstalledError) as raised:
        asyncio.run(writer(InMemoryApi(ManualClock(NOW))).ensure())
    assert str(raised.value) == (
        "namespace system, where the Secret certificates is kept, does not exist: kubectl create namespace system"
    )


def test_a_good_secret_is_left_alone() -> None:
    api = holding(certificates())
    assert asyncio.run(writer(api).ensure()) == certificates()
    assert writes_requested(api) == []


def test_a_leaf_that_nears_its_end_is_renewed_with_a_new_authority_when_that_does_too() -> None:
    api = holding(certificates(), OLD)
    made = asyncio.run(writer(api).ensure())
    assert stored(api) == made
    assert made.authority != certificates().authority
    assert fault(made, NAME, OLD) == ""


def test_a_leaf_for_another_name_is_renewed_under_the_same_authority() -> None:
    api = holding(certificates("old.example"))
    made = asyncio.run(writer(api).ensure())
    assert made.authority == certificates("old.example").authority
    assert fault(made, NAME, NOW) == ""


def test_renewing_changes_the_data_and_nothing_else() -> None:
    api = holding(certificates("old.example"))
    before = secret(api)
    api.put(SECRETS, {**before, "data": {**before["data"], "other": "eA=="}})
    asyncio.run(writer(api).ensure())
    after = secret(api)
    assert (after["type"], after["data"]["other"], after["metadata"]["labels"]) == ("Opaque", "eA==", {"mine": "yes"})


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "?"}, {"cert.pem": "AAAA"}])
def test_a_secret_without_usable_data_is_filled(data: dict[str, str] | None) -> None:
    api = holding(certificates(), data=data)
    made = asyncio.run(writer(api).ensure())
    assert stored(api) == made


def test_of_two_who_create_at_once_one_wins_and_both_have_the_same() -> None:
    async def scenario() -> None:
        api = InMemoryApi(ManualClock(NOW))
        api.put(NAMESPACES, {"metadata": {"name": "system"}})
        both = await asyncio.gather(writer(api).ensure(), writer(api).ensure())
        assert both[0] == both[1] == stored(api)
        assert writes_requested(api) == ["create", "create"]

    asyncio.run(scenario())


def test_of_two_who_renew_at_once_one_wins_and_both_have_the_same() -> None:
    async def scenario() -> None:
        api = holding(certificates("old.example"))
        both = await asyncio.gather(writer(api).ensure(), writer(api).ensure())
        assert both[0] == both[1] == stored(api)
        assert writes_requested(api) == ["patch", "patch"]

    asyncio.run(scenario())


def test_a_conflict_over_something_that_is_still_bad_is_an_error() -> None:
    api = holding(certificates("old.example"))

    def touch(request: ApiRequest, done: bool) -> None:
        if request.verb == "patch" and not done:
            api.put(SECRETS, secret(api))

    api.fault = touch
    with pytest.raises(ApiStatusError, match="modified"):
        asyncio.run(writer(api).ensure())


def test_a_secret_that_may_not_be_read_is_an_error() -> None:
    api = InMemoryApi()
    api.fault = lambda request, done: ApiStatusError(403, "Forbidden", "secrets is forbidden")
    with pytest.raises(ApiStatusError, match="forbidden"):
        asyncio.run(writer(api).ensure())


def test_files_are_made_when_absent_and_the_same_until_somebody_writes_them(tmp_path: Path) -> None:
    files = FileWriter(tmp_path, NAME, ManualClock(NOW))
    made = asyncio.run(files.ensure())
    assert fault(made, NAME, NOW) == ""
    assert asyncio.run(files.ensure()) == made


def test_files_that_are_good_are_kept(tmp_path: Path) -> None:
    write_files(tmp_path, certificates(), NOW)
    assert asyncio.run(FileWriter(tmp_path, NAME, ManualClock(NOW)).ensure()) == certificates()


def test_files_that_near_their_end_are_made_anew(tmp_path: Path) -> None:
    write_files(tmp_path, certificates(), NOW)
    made = asyncio.run(FileWriter(tmp_path, NAME, ManualClock(OLD)).ensure())
    assert fault(made, NAME, OLD) == ""


def test_files_have_an_authority_of_their_own_each_time(tmp_path: Path) -> None:
    write_files(tmp_path, certificates("old.example"), NOW)
    made = asyncio.run(FileWriter(tmp_path, NAME, ManualClock(NOW)).ensure())
    assert made.authority != certificates("old.example").authority
