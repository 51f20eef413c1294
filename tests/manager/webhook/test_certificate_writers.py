"""Where certificates are kept: made when absent, renewed when bad, one for all replicas."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import SECRETS
from koordinator.base.clock import ManualClock
from koordinator.kube.errors import ApiStatusError
from koordinator.manager.missing import NotInstalledError
from koordinator.manager.webhook.certificate_files import from_files, to_files, write_files
from koordinator.manager.webhook.certificate_writers import FileWriter, SecretWriter
from koordinator.manager.webhook.certificates import Certificates, fault
from tests.kube.fake_client import MemoryClient, as_client
from tests.manager.webhook.making import NAME, NOW, certificates

KEY = (SECRETS.qualified, "system", "certificates")
OLD = NOW + timedelta(days=3650 - 100)


def writer(client: MemoryClient, clock: ManualClock | None = None) -> SecretWriter:
    return SecretWriter(as_client(client), "system", "certificates", NAME, clock or ManualClock(NOW))


def store(client: MemoryClient, held: Certificates, **more: Any) -> None:
    data = {name: base64.b64encode(content).decode() for name, content in to_files(held).items()}
    metadata = {"name": "certificates", "namespace": "system", "resourceVersion": "0", "labels": {"mine": "yes"}}
    client.objects[KEY] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data, **more}


def stored(client: MemoryClient) -> Certificates:
    data = client.objects[KEY]["data"]
    return from_files({name: base64.b64decode(text) for name, text in data.items()})


def writes(client: MemoryClient) -> list[str]:
    return [verb for verb, _, _ in client.calls if verb != "get"]


def test_without_a_secret_one_is_made() -> None:
    client = MemoryClient()
    made = asyncio.run(writer(client).ensure())
    assert stored(client) == made
    assert fault(made, NAME, NOW) == ""


def test_a_namespace_that_does_not_exist_is_named_with_the_command_that_makes_it() -> None:
    client = MemoryClient()

    async def refuse(verb: str, name: str) -> None:
        if verb == "create":
            raise ApiStatusError(404, "NotFound", 'namespaces "system" not found')

    client.before = refuse
    with pytest.raises(NotInstalledError) as raised:
        asyncio.run(writer(client).ensure())
    assert str(raised.value) == (
        "namespace system, where the Secret certificates is kept, does not exist: kubectl create namespace system"
    )


def test_a_good_secret_is_left_alone() -> None:
    client = MemoryClient()
    store(client, certificates())
    assert asyncio.run(writer(client).ensure()) == certificates()
    assert writes(client) == []


def test_a_leaf_that_nears_its_end_is_renewed_with_a_new_authority_when_that_does_too() -> None:
    client = MemoryClient()
    store(client, certificates())
    made = asyncio.run(writer(client, ManualClock(OLD)).ensure())
    assert stored(client) == made
    assert made.authority != certificates().authority
    assert fault(made, NAME, OLD) == ""


def test_a_leaf_for_another_name_is_renewed_under_the_same_authority() -> None:
    client = MemoryClient()
    store(client, certificates("old.example"))
    made = asyncio.run(writer(client).ensure())
    assert made.authority == certificates("old.example").authority
    assert fault(made, NAME, NOW) == ""


def test_renewing_changes_the_data_and_nothing_else() -> None:
    client = MemoryClient()
    store(client, certificates("old.example"), type="Opaque")
    client.objects[KEY]["data"]["other"] = "eA=="
    asyncio.run(writer(client).ensure())
    secret = client.objects[KEY]
    assert (secret["type"], secret["data"]["other"], secret["metadata"]["labels"]) == (
        "Opaque",
        "eA==",
        {"mine": "yes"},
    )


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "?"}, {"cert.pem": "AAAA"}])
def test_a_secret_without_usable_data_is_filled(data: dict[str, str] | None) -> None:
    client = MemoryClient()
    store(client, certificates())
    client.objects[KEY]["data"] = data
    made = asyncio.run(writer(client).ensure())
    assert stored(client) == made


def test_of_two_who_create_at_once_one_wins_and_both_have_the_same() -> None:
    async def scenario() -> None:
        client = MemoryClient()
        both = await asyncio.gather(writer(client).ensure(), writer(client).ensure())
        assert both[0] == both[1] == stored(client)
        assert writes(client) == ["create", "create"]

    asyncio.run(scenario())


def test_of_two_who_renew_at_once_one_wins_and_both_have_the_same() -> None:
    async def scenario() -> None:
        client = MemoryClient()
        store(client, certificates("old.example"))
        both = await asyncio.gather(writer(client).ensure(), writer(client).ensure())
        assert both[0] == both[1] == stored(client)
        assert writes(client) == ["patch", "patch"]

    asyncio.run(scenario())


def test_a_conflict_over_something_that_is_still_bad_is_an_error() -> None:
    client = MemoryClient()
    store(client, certificates("old.example"))

    async def touch(verb: str, name: str) -> None:
        if verb == "patch":
            client._write(KEY, client.objects[KEY])

    client.before = touch
    with pytest.raises(ApiStatusError, match="modified"):
        asyncio.run(writer(client).ensure())


def test_a_secret_that_may_not_be_read_is_an_error() -> None:
    client = MemoryClient()

    async def forbid(verb: str, name: str) -> None:
        raise ApiStatusError(403, "Forbidden", "secrets is forbidden")

    client.before = forbid
    with pytest.raises(ApiStatusError, match="forbidden"):
        asyncio.run(writer(client).ensure())


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
