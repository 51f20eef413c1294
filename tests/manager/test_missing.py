"""Sentences about what a cluster lacks, where it is called otherwise than in our manifests."""

from __future__ import annotations

from koordinator.manager.missing import (
    WebhookConfigurationName,
    install_command,
    missing_slo_configuration,
    missing_webhook_configurations,
)


def test_a_webhook_configuration_of_another_name_is_not_in_the_manifests() -> None:
    mine = WebhookConfigurationName("MutatingWebhookConfiguration", "mine", "MUTATING_WEBHOOK_NAME", "ours")
    assert missing_webhook_configurations([mine], "koordinator-system") == (
        "MutatingWebhookConfiguration mine does not exist: install what is named so, or correct MUTATING_WEBHOOK_NAME "
        "(default ours)"
    )


def test_a_config_map_of_another_name_is_not_in_the_manifests() -> None:
    text = missing_slo_configuration("mine", "ours", "koordinator-system")
    assert text.endswith("so that no node lends anything: create it, or correct --slo-config-name (default ours)")


def test_another_namespace_is_named_in_the_command() -> None:
    assert install_command("webhook", "mine") == "koord manifests --only webhook --namespace mine | kubectl apply -f -"
