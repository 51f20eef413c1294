"""What the environment says about the webhooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.manager.environment import WebhookEnvironment, read_environment


def test_without_variables_it_is_as_in_the_original() -> None:
    found = read_environment({})
    assert found == WebhookEnvironment()
    assert (found.port, found.certificate_folder) == (9876, Path("/tmp/koordinator-webhook-certs"))
    assert found.certified_name == "koordinator-webhook-service.koordinator-system.svc"


def test_every_variable_is_read() -> None:
    found = read_environment(
        {
            "WEBHOOK_PORT": "443",
            "WEBHOOK_HOST": "hooks.example",
            "WEBHOOK_CERT_DIR": "/certificates",
            "WEBHOOK_CERT_WRITER": "secret",
            "POD_NAMESPACE": "ns",
            "SERVICE_NAME": "service",
            "SECRET_NAME": "secret",
            "MUTATING_WEBHOOK_NAME": "mutating",
            "VALIDATING_WEBHOOK_NAME": "validating",
        }
    )
    expected = WebhookEnvironment(
        443, "hooks.example", Path("/certificates"), "secret", "ns", "service", "secret", "mutating", "validating"
    )
    assert found == expected
    assert found.certified_name == "hooks.example"


def test_an_empty_variable_is_absent() -> None:
    assert read_environment({"WEBHOOK_PORT": "", "POD_NAMESPACE": "", "SECRET_NAME": ""}) == WebhookEnvironment()


@pytest.mark.parametrize("text", ["none", "0", "65536", "-1", "98.76"])
def test_a_port_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="WEBHOOK_PORT"):
        read_environment({"WEBHOOK_PORT": text})


def test_a_writer_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigurationError, match="WEBHOOK_CERT_WRITER"):
        read_environment({"WEBHOOK_CERT_WRITER": "vault"})


@pytest.mark.parametrize(
    ("writer", "host", "files_only"),
    [("", "", False), ("", "h", True), ("fs", "", True), ("fs", "h", True), ("secret", "h", False)],
)
def test_certificates_are_kept_in_files_alone_where_a_host_is_named(writer: str, host: str, files_only: bool) -> None:
    assert WebhookEnvironment(certificate_writer=writer, host=host).writes_files_only is files_only
