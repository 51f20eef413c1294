"""The health endpoints, in the real server's words."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from koordinator.cluster.access.identity import ADMIN, ANONYMOUS, User
from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.access import USER
from koordinator.cluster.http.endpoints import PING, Health, HealthCheck, health_response

ILL = HealthCheck("storage", lambda: "the disk is full")
WELL = HealthCheck("namespace-termination", lambda: "")
HEALTH = Health(live=(PING, WELL), ready=(PING, ILL, WELL))


def _response(path: str, user: User = ANONYMOUS) -> tuple[int, str]:
    async def main() -> tuple[int, str]:
        request = make_mocked_request("GET", path)
        request[USER] = user
        response = health_response(HEALTH, request.path.strip("/").split("/"), request)
        assert isinstance(response, web.Response)
        return response.status, str(response.text)

    return asyncio.run(main())


def test_what_is_well_is_reported_briefly() -> None:
    assert _response("/livez") == (200, "ok")


def test_or_in_full() -> None:
    assert _response("/livez?verbose") == (200, "[+]ping ok\n[+]namespace-termination ok\nlivez check passed\n")


def test_what_fails_is_named_without_being_queried() -> None:
    text = "[+]ping ok\n[-]storage failed: reason withheld\n[+]namespace-termination ok\nreadyz check failed\n"
    assert _response("/readyz") == (500, text)


def test_who_has_a_credential_hears_why() -> None:
    assert "[-]storage failed: the disk is full\n" in _response("/healthz", ADMIN)[1]


def test_checks_can_be_excluded() -> None:
    text = "[+]ping ok\n[+]storage excluded: ok\n[+]namespace-termination ok\n"
    warning = 'warn: some health checks cannot be excluded: no matches for "x"\n'
    assert _response("/readyz?verbose&exclude=storage&exclude=x") == (200, f"{text}{warning}readyz check passed\n")


@pytest.mark.parametrize(
    ("path", "response"),
    [("/readyz/ping", (200, "ok")), ("/readyz/storage", (500, "internal server error: the disk is full\n"))],
)
def test_one_check_alone(path: str, response: tuple[int, str]) -> None:
    assert _response(path) == response


def test_a_check_that_there_is_not() -> None:
    with pytest.raises(ApiError, match="could not find"):
        _response("/livez/storage")
