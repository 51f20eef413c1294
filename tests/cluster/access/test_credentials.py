"""Tokens of ServiceAccounts, client certificates and the token file: whose request it is, and when it is nobody's."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koordinator.base.clock import ManualClock, SystemClock
from koordinator.base.errors import ConfigurationError
from koordinator.cluster.access.identity import AUTHENTICATED, User
from koordinator.cluster.http.access import read_token_file
from koordinator.cluster.server import ServerOptions
from koordinator.cluster.service_account_tokens import AccountTokens, Claims, InvalidToken, Reference, kept_tokens
from tests.cluster.access.rbac_server import run
from tests.cluster.embedded import ApiClient, HttpResponse, embedded_api, pod

T = TypeVar("T")
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


async def _token(client: ApiClient, **spec: Any) -> HttpResponse:
    await client.request("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    return await client.request("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})


async def _who(client: ApiClient, token: str) -> HttpResponse:
    return await client.request("POST", WHO_AM_I, {}, Authorization=f"Bearer {token}")


def test_a_token_of_an_account_is_good_until_the_account_is_gone() -> None:
    async def scenario(client: ApiClient) -> tuple[Any, Any, list[int]]:
        requested = (await _token(client, expirationSeconds=1200)).body
        token = requested["status"]["token"]
        who = await _who(client, token)
        await client.request("DELETE", f"{ACCOUNTS}/robot")
        gone = await _who(client, token)
        await client.post(ACCOUNTS, {"metadata": {"name": "robot"}})
        return requested, who.body, [who.status, gone.status, (await _who(client, token)).status]

    requested, who, statuses = run(scenario)
    assert statuses == [201, 401, 401]
    assert requested["spec"]["expirationSeconds"] == 1200
    info = who["status"]["userInfo"]
    assert (info["username"], info["uid"]) == ("system:serviceaccount:default:robot", requested["metadata"]["uid"])
    assert info["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", AUTHENTICATED]
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


def test_a_token_that_is_bound_to_a_pod_goes_with_it() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post("/api/v1/namespaces/default/pods", pod("p", serviceAccountName="robot"))
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        token = (await _token(client, boundObjectRef=reference)).body["status"]["token"]
        before = await _who(client, token)
        assert before.body["status"]["userInfo"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
        await client.request("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
        return [before.status, (await _who(client, token)).status]

    assert run(scenario) == [201, 401]


def test_a_token_for_another_audience_is_not_for_the_api_server() -> None:
    async def scenario(client: ApiClient) -> tuple[int, list[Any]]:
        token = (await _token(client, audiences=["vault"])).body["status"]["token"]
        reviews = [{"spec": {"token": token}}, {"spec": {"token": token, "audiences": ["vault", "other"]}}]
        found = [(await client.post(TOKEN_REVIEWS, each))["status"] for each in reviews]
        return (await _who(client, token)).status, found

    status, (own, vault) = run(scenario)
    assert (status, own) == (401, {"user": {}, "error": "invalid bearer token"})
    assert (vault["authenticated"], vault["audiences"]) == (True, ["vault"])


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        ({"expirationSeconds": 10}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 1 << 33}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"expirationSeconds": "x"}, 400, "cannot be handled as a TokenRequest"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "gone"}}, 404, 'pods "gone" not found'),
        ({"boundObjectRef": {"kind": "Lease", "apiVersion": "v1", "name": "x"}}, 400, "cannot bind token"),
    ],
)
def test_a_request_for_a_token_says_what_is_wrong_with_it(spec: dict[str, Any], status: int, message: str) -> None:
    response = run(lambda client: _token(client, **spec))
    assert response.status == status
    assert message in response.body["message"]


def test_there_is_no_token_of_an_account_that_is_not_there() -> None:
    response = run(lambda client: client.request("POST", f"{ACCOUNTS}/gone/token", {"spec": {}}))
    assert (response.status, response.body["message"]) == (404, 'serviceaccounts "gone" not found')


def _claims(now: int = 0) -> Claims:
    return Claims("default", Reference("serviceaccount", "robot", "u1"), ("a",), now, now + 600, "t1")


def _there(group: str, plural: str, namespace: str | None, name: str) -> dict[str, Any]:
    return {"metadata": {"uid": "u1"}}


def test_a_token_expires_and_is_not_good_before_its_time() -> None:
    clock, tokens = ManualClock(), AccountTokens(ec.generate_private_key(ec.SECP256R1()))
    start = clock.now()
    token = tokens.issue(_claims(int(start.timestamp())))
    for seconds in (0, 599):
        moment = start + timedelta(seconds=seconds)
        assert tokens.verify(token, ("a",), moment, _there).user.name == "system:serviceaccount:default:robot"
    for seconds in (-1, 600):
        with pytest.raises(InvalidToken, match="expired"):
            tokens.verify(token, ("a",), start + timedelta(seconds=seconds), _there)


def test_a_token_that_was_changed_or_signed_by_another_key_is_refused() -> None:
    clock = ManualClock()
    mine, other = (AccountTokens(ec.generate_private_key(ec.SECP256R1())) for _ in range(2))
    token = mine.issue(_claims(int(clock.now().timestamp())))
    header, payload, signature = token.split(".")
    forged = [
        other.issue(_claims(int(clock.now().timestamp()))),
        f"{header}.{payload[:-4]}AAAA.{signature}",
        f"{header}.{payload}.{signature[:-4]}AAAA",
        f"{header}.{payload}.",
        f"{header}.{payload}",
        f"{header}.{payload}.{signature}.x",
        "eyJhbGciOiJub25lIn0.e30.",
        "",
        "ß.ß.ß",
    ]
    for each in forged:
        with pytest.raises(InvalidToken):
            mine.verify(each, ("a",), clock.now(), _there)


def test_the_key_is_kept(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "key"
    token = kept_tokens(path).issue(_claims(int(clock.now().timestamp())))
    assert kept_tokens(path).verify(token, ("a",), clock.now(), _there).audiences == ["a"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_everybody_can_check_a_token_with_the_keys_that_the_issuer_names() -> None:
    async def scenario(client: ApiClient) -> tuple[Any, Any, str]:
        await client.post(ACCOUNTS, {"metadata": {"name": "robot"}})
        issuer = await client.get("/.well-known/openid-configuration")
        keys = await client.get("/" + issuer["jwks_uri"].split("/", 3)[3])
        made = await client.post(f"{ACCOUNTS}/robot/token", {"spec": {}})
        return issuer, msgspec.json.decode(keys), made["status"]["token"]

    issuer, keys, token = run(scenario)
    (key,) = keys["keys"]
    header, payload, signature = token.split(".")
    assert (key["kid"], key["alg"]) == (_read(header)["kid"], _read(header)["alg"])
    assert issuer["issuer"] == _read(payload)["iss"]
    assert issuer["id_token_signing_alg_values_supported"] == ["ES256"]
    x, y = (int.from_bytes(_bytes(key[name]), "big") for name in "xy")
    first, second = (int.from_bytes(half, "big") for half in (_bytes(signature)[:32], _bytes(signature)[32:]))
    # Raises InvalidSignature where the key is not that of the token.
    ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key().verify(
        encode_dss_signature(first, second), f"{header}.{payload}".encode(), ec.ECDSA(hashes.SHA256())
    )


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _read(part: str) -> Any:
    return msgspec.json.decode(_bytes(part))


def _certificate(folder: Path, authority: Path, *organizations: str) -> tuple[Path, Path]:
    """One of jane that the cluster's authority has signed, as ``openssl x509 -req`` makes it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), SystemClock().now()
    issuer = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    certificate, private = folder / "jane.crt", folder / "jane.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


def test_a_client_certificate_names_a_user_and_groups(tmp_path: Path) -> None:
    async def scenario(client: ApiClient) -> Any:
        certificate, key = _certificate(tmp_path, tmp_path / "data/pki", "staff", "night shift")
        context = ssl.create_default_context(cadata=client.api.certificate_authority)
        context.load_cert_chain(certificate, key)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.post(client.api.url + WHO_AM_I, json={}) as response,
        ):
            return (await response.json())["status"]["userInfo"]

    info = run(scenario, data=tmp_path / "data")
    assert info == {"username": "jane", "groups": ["staff", "night shift", AUTHENTICATED]}


def test_a_certificate_of_another_authority_opens_no_connection(tmp_path: Path) -> None:
    async def first(client: ApiClient) -> None: ...

    async def scenario(client: ApiClient) -> None:
        context = ssl.create_default_context(cadata=client.api.certificate_authority)
        context.load_cert_chain(*_certificate(tmp_path, tmp_path / "other/pki"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await session.post(client.api.url + WHO_AM_I, json={})

    run(first, data=tmp_path / "other")
    run(scenario, data=tmp_path / "data")


def test_the_token_file_names_users(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('t1,jane,7,"staff,night shift"\n\nt2,bob,8\n')
    users = read_token_file(path)
    assert users == {
        "t1": User("jane", ("staff", "night shift", AUTHENTICATED), "7"),
        "t2": User("bob", (AUTHENTICATED,), "8"),
    }
    response = run(lambda client: _who(client, "t1"), users=users)
    assert response.body["status"]["userInfo"]["username"] == "jane"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t1,jane,1\nt2,bob\n", "line 2 is not TOKEN,USER,UID"),
        (",jane,1\n", "line 1 is not"),
        ("t1,jane,1\nt1,bob,2\n", "line 2 has the token of an earlier line"),
    ],
)
def test_a_wrong_line_of_the_token_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_token_file(path)


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token_file(tmp_path / "gone")


def _plain(scenario: Callable[[ApiClient], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with embedded_api(replace(ServerOptions(), **options)) as client:
            return await scenario(client)

    return asyncio.run(main())


def test_where_everything_is_permitted_a_credential_is_needed_all_the_same() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        token = (await _token(client)).body["status"]["token"]
        path = "/api/v1/nodes"
        known = await client.request("GET", path, Authorization=f"Bearer {token}")
        unknown = await client.request("GET", path, Authorization="")
        return [known.status, unknown.status]

    assert _plain(scenario) == [200, 401]
