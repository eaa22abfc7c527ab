"""Who may ask a server of ours over HTTP: the rules, whatever serves."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import SplitResult, urlsplit

from infra.errors import SettingsError

MIN_TOKEN = 16


def check_token(name: str, token: str) -> str:
    """Check that a token cannot be guessed; ``name`` says where it came from.

    Raises:
        SettingsError: it can; the message does not repeat it.
    """
    if token != token.strip():
        # A header's value loses it on the way: nobody could ever give this token.
        raise SettingsError(
            f"{name}: expected no white space before or behind the token, found some",
            "take away blanks and line ends around it",
        )
    if len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()):
        raise SettingsError(
            f"{name}: expected at least {MIN_TOKEN} ASCII characters, found "
            f"{len(token)}",
            "make one with `openssl rand -hex 32`",
        )
    return token


def is_loopback(host: str) -> bool:
    """Say whether a host, as in an address or a Host header, is this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Say whether a host is an address: no name that was made to point here."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def host_of(header: str) -> str:
    """Return the host that a Host header names, in small letters; "" when none."""
    found = _split(f"//{header}")
    if found is None or found.netloc != header or found.username is not None:
        return ""
    return found.hostname or ""


def is_same_origin(origin: str, host_header: str) -> bool:
    """Say whether an Origin header is of the very server that Host names."""
    here = _split(f"//{host_header}")
    found = _split(origin)
    if found is None or here is None or found.scheme not in ("http", "https"):
        return False
    usual = 443 if found.scheme == "https" else 80
    one, other = ((each.hostname, each.port or usual) for each in (found, here))
    return one == other and origin == f"{found.scheme}://{found.netloc}"


def is_same_secret(given: str, token: str) -> bool:
    """Compare in a time that does not tell how much is right."""
    return hmac.compare_digest(
        given.encode(errors="surrogatepass"), token.encode(errors="surrogatepass")
    )


def is_bearer(authorization: str, token: str) -> bool:
    """Say whether an Authorization header carries the token."""
    scheme, _, given = authorization.partition(" ")
    same = is_same_secret(given.strip(), token)
    return scheme.lower() == "bearer" and same


def _split(url: str) -> SplitResult | None:
    try:
        found = urlsplit(url)
        _ = found.port  # checked only when it is asked for
    except ValueError:
        return None
    return found
