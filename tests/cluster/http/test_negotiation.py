from __future__ import annotations

import pytest

from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.negotiation import DISCOVERY, VERSION, Offer, Representation, negotiate, offer

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"
CONFIG_MAPS = offer("v1", "ConfigMap", streams=False, custom=False)
WATCHED = offer("v1", "ConfigMap", streams=True, custom=False)
CUSTOM = offer("example.com/v1", "Foo", streams=False, custom=True)
ALL = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "plain"),
        ("*/*", "plain"),
        ("application/vnd.kubernetes.protobuf, */*", "plain"),
        ("application/vnd.kubernetes.protobuf,application/json", "plain"),
        (f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "table"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "plain"),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "metadata"),
        (f"{PROTOBUF}{METADATA},application/json{METADATA},application/json", "metadata"),
        (f"application/json;q=0.5,{TABLE};q=0.9", "table"),
    ],
)
def test_forms_in_json(accept: str, form: str) -> None:
    assert negotiate(accept, CONFIG_MAPS) == Representation(form)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accept", "offered", "agreed"),
    [
        (PROTOBUF, CONFIG_MAPS, Representation("plain", "protobuf")),
        (f"{PROTOBUF},application/yaml", CONFIG_MAPS, Representation("plain", "protobuf")),
        (f"{PROTOBUF},application/yaml", CUSTOM, Representation("plain", "yaml")),
        (f"{PROTOBUF}{METADATA}", CUSTOM, Representation("metadata", "protobuf")),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{TABLE}", CONFIG_MAPS, Representation("table")),
        ("application/yaml;as=Table;g=meta.k8s.io;v=v1", CONFIG_MAPS, Representation("table", "yaml")),
        ("application/yaml;q=0.1,application/json", CONFIG_MAPS, Representation("plain")),
        ("*/*,application/yaml", CONFIG_MAPS, Representation("plain", "yaml")),
        ("text/html,application/*;q=0.3", CONFIG_MAPS, Representation("plain")),
    ],
)
def test_encodings(accept: str, offered: Offer, agreed: Representation) -> None:
    assert negotiate(accept, offered) == agreed


def test_all_of_discovery_in_one_document() -> None:
    both = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    assert negotiate(both, DISCOVERY).form == "discovery"
    assert negotiate(both, CONFIG_MAPS).form == "plain"


@pytest.mark.parametrize(
    ("accept", "offered", "message"),
    [
        (
            "text/html",
            CONFIG_MAPS,
            f"406: Not Acceptable\n\nAvailable representations: {ALL}, "
            "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        ),
        ("text/html", DISCOVERY, f"406: Not Acceptable\n\nAvailable representations: {ALL}"),
        ("application/yaml", VERSION, "406: Not Acceptable\n\nAvailable representations: application/json"),
        (TABLE.replace("v1", "v9"), CONFIG_MAPS, f"only the following media types are accepted: {ALL}"),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", CONFIG_MAPS, f"only the following media types are accepted: {ALL}"),
        (
            "application/yaml",
            WATCHED,
            "only the following media types are accepted: application/json;stream=watch, "
            "application/vnd.kubernetes.protobuf;stream=watch",
        ),
        (PROTOBUF, CUSTOM, "only the following media types are accepted: application/json, application/yaml"),
    ],
)
def test_what_cannot_be_made_is_not_acceptable(accept: str, offered: Offer, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        negotiate(accept, offered)
    assert (refused.value.code, refused.value.message) == (406, message)
