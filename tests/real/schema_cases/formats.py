"""The formats of strings."""

from __future__ import annotations

from tests.real.schema_cases.building import Talk, refuse, spec

FORMATS = [
    Talk(
        "formats",
        spec(
            **{
                name.replace("-", ""): {"type": "string", "format": name}
                for name in (
                    "date-time",
                    "date",
                    "duration",
                    "ipv4",
                    "ipv6",
                    "cidr",
                    "mac",
                    "uuid",
                    "uuid4",
                    "email",
                    "hostname",
                    "uri",
                    "byte",
                    "hexcolor",
                    "rgbcolor",
                    "ssn",
                    "isbn",
                    "creditcard",
                    "bsonobjectid",
                    "password",
                    "k8s-short-name",
                    "k8s-long-name",
                    "unheard-of",
                )
            },
            small={"type": "integer", "format": "int32"},
        ),
        [
            refuse(datetime="2026-01-02T03:04:05Z", date="2026-01-02", duration="1h30m", ipv4="10.0.0.1", ipv6="::1"),
            refuse(cidr="10.0.0.0/8", mac="01:23:45:67:89:ab", uuid="550e8400-e29b-41d4-a716-446655440000"),
            refuse(email="a@example.com", hostname="a.example.com", uri="https://example.com/a?b", byte="aGk="),
            refuse(hexcolor="#fff", rgbcolor="rgb(1, 2, 255)", ssn="123-45-6789", isbn="978-0321751041"),
            refuse(creditcard="4111 1111 1111 1111", bsonobjectid="507f1f77bcf86cd799439011", password="x"),
            refuse(k8sshortname="a-b", k8slongname="a.b-c", unheardof="?", small=1 << 40),
            *(
                refuse(**{name: value})
                for name, value in (
                    ("datetime", "2026-01-02 03:04:05Z"),
                    ("datetime", "2026-01-02T25:04:05Z"),
                    ("datetime", "2026-01-02t03:04:05.1z"),
                    ("datetime", 5),
                    ("datetime", True),
                    ("datetime", []),
                    ("date", "2026-02-30"),
                    ("date", "20260102"),
                    ("duration", "soon"),
                    ("duration", "3 days"),
                    ("duration", ""),
                    ("ipv4", "::1"),
                    ("ipv4", "010.0.0.1"),
                    ("ipv4", "10.0.0"),
                    ("ipv6", "10.0.0.1"),
                    ("cidr", "10.0.0.0"),
                    ("cidr", "10.0.0.0/33"),
                    ("mac", "01:23"),
                    ("mac", "0123.4567.89ab"),
                    ("uuid", "550e8400"),
                    ("uuid4", "550e8400-e29b-11d4-a716-446655440000"),
                    ("email", "a"),
                    ("email", "A <a@example.com>"),
                    ("hostname", "a_b"),
                    ("hostname", "-a"),
                    ("uri", "a b"),
                    ("uri", "example.com"),
                    ("uri", "/path"),
                    ("byte", "a"),
                    ("byte", ""),
                    ("hexcolor", "red"),
                    ("rgbcolor", "rgb(256,0,0)"),
                    ("ssn", "123"),
                    ("isbn", "0321751044"),
                    ("creditcard", "4111111111111112"),
                    ("bsonobjectid", "x"),
                    ("k8sshortname", "a.b"),
                    ("k8slongname", "A"),
                )
            ),
        ],
    ),
]
