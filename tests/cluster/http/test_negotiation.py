from __future__ import annotations

import pytest

from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.response import negotiate

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


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
        (f"application/json;q=0.5,{TABLE};q=0.9", "table"),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "discovery"),
    ],
)
def test_forms(accept: str, form: str) -> None:
    assert negotiate(accept) == form


@pytest.mark.parametrize("accept", ["text/html", TABLE.replace("v1", "v9"), "application/yaml"])
def test_what_cannot_be_made_is_not_acceptable(accept: str) -> None:
    with pytest.raises(ApiError) as refused:
        negotiate(accept)
    assert refused.value.code == 406
