"""Rules of access, whatever serves: names, origins, tokens."""

import pytest

from infra.errors import SettingsError
from infra.http_access import (
    check_token,
    host_of,
    is_address,
    is_bearer,
    is_loopback,
    is_same_origin,
)

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8580", "localhost"),
        ("127.0.0.1:8580", "127.0.0.1"),
        ("[::1]:8580", "::1"),
        ("[::1]", "::1"),
        ("evil.example:80", "evil.example"),
        # Not one host, or not only a host.
        ("", ""),
        ("localhost:port", ""),
        ("localhost:99999", ""),
        ("someone@localhost", ""),
        ("localhost/path", ""),
        ("localhost?x", ""),
        ("localhost#x", ""),
        ("[::1", ""),
        ("evil.example\\@localhost", ""),
    ],
)
def test_a_host_header_names_one_host(header, host):
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("[::1]", True),
        # Names that may be made to point anywhere, and addresses of others.
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::", False),
        ("", False),
        ("0x7f.1", False),
        ("2130706433", False),
    ],
)
def test_loopback_is_known_by_its_addresses_and_one_name(host, local):
    assert is_loopback(host) is local


def test_addresses_are_told_from_names():
    assert is_address("10.0.0.1") and is_address("[fe80::1]")
    assert not is_address("localhost") and not is_address("10.0.0.1.example")


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost:8580", "localhost:8580", True),
        ("http://LOCALHOST:8580", "localhost:8580", True),
        ("http://[::1]:8580", "[::1]:8580", True),
        ("https://dash.example", "dash.example", True),
        ("https://dash.example", "dash.example:443", True),
        ("http://dash.example:80", "dash.example", True),
        # Another port is another site's page, on this machine too.
        ("http://localhost:3000", "localhost:8580", False),
        ("http://127.0.0.1:8580", "localhost:8580", False),
        ("http://evil.example", "localhost:8580", False),
        ("null", "localhost:8580", False),
        ("file://", "", False),
        ("http://localhost:8580/", "localhost:8580", False),
        ("ftp://localhost:8580", "localhost:8580", False),
        ("http://localhost:8580@evil.example", "localhost:8580", False),
        ("http://[", "localhost:8580", False),
    ],
)
def test_an_origin_is_ours_or_not(origin, host, same):
    assert is_same_origin(origin, host) is same


@pytest.mark.parametrize(
    ("header", "right"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN} ", True),
        (f"Basic {TOKEN}", False),
        (TOKEN, False),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        ("Bearer", False),
        ("", False),
        ("Bearer \udcff\xff", False),
        ("Bearer \ud800", False),
    ],
)
def test_only_the_whole_token_counts(header, right):
    assert is_bearer(header, TOKEN) is right


@pytest.mark.parametrize("poor", ["", "short", "ä" * 20, "with\nline-end-inside"])
def test_a_poor_token_is_refused_and_not_repeated(poor):
    with pytest.raises(SettingsError) as refused:
        check_token("TOKEN", poor)
    assert str(refused.value).startswith("TOKEN: expected at least 16")
    assert not poor or poor not in str(refused.value)


@pytest.mark.parametrize("around", [" {}", "{} ", "{}\n", "\t{}", "{}\r\n"])
def test_a_token_that_no_header_can_carry_is_refused(around):
    with pytest.raises(
        SettingsError, match="TOKEN: expected no white space"
    ) as refused:
        check_token("TOKEN", around.format(TOKEN))
    assert TOKEN not in str(refused.value)


def test_a_token_of_sixteen_is_enough():
    assert check_token("TOKEN", TOKEN) == TOKEN
