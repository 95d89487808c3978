"""Sign-in of people: by a header of a reverse proxy, or by OpenID Connect.

A session is a signed cookie, which the server does not store. It names the user; the role comes
from the settings at each request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import ipaddress
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

from pydantic import Field, field_validator, model_validator

from hpctwin.errors import ConfigError, DeniedError, need
from hpctwin.model.settings import Duration, Settings
from hpctwin.twin.settings.config import read_trusted_yaml
from hpctwin.web.server.answers import Receive, Scope, Send
from hpctwin.web.server.gate import Person, Role

__all__ = ["HeaderSettings", "OidcSettings", "SignIn", "SignInSettings"]

SIGN_IN, CALLBACK, SIGN_OUT = "/sign-in", "/sign-in/callback", "/sign-out"
SECRET_HEADER = b"x-hpctwin-proxy"
FLOW_S = 600.0
"""Time for a sign-in at the provider, in seconds."""
TIMEOUT_S = 10.0
KNOWN_S = 3600.0
"""Time after which the provider's addresses and keys are read again, in seconds."""
LEEWAY_S = 60
LONGEST_NAME = 128
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
"""Accepted signatures of the provider: all asymmetric."""


class HeaderSettings(Settings):
    """Sign-in by a reverse proxy, which checks the user and names it in a header.

    Args:
        name: Name of the header, for example ``X-Remote-User``.
        proxies: Addresses or networks of the proxies. The header is refused from elsewhere.
        secret_env: Environment variable with a secret of at least 16 characters, which the proxy
            sends in the header ``X-Hpctwin-Proxy``. It is required if a proxy has a loopback
            address, since all users of a host can connect from there.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$", max_length=64)
    proxies: tuple[str, ...] = Field(min_length=1)
    secret_env: str | None = None

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            ipaddress.ip_network(one)
        return given

    @model_validator(mode="after")
    def _loopback_needs_a_secret(self) -> Self:
        if self.secret_env is None and any(
            ipaddress.ip_network(one).network_address.is_loopback for one in self.proxies
        ):
            raise ValueError(
                "secret_env: a proxy on this host needs a secret, since all users of the host can "
                "connect from the same address"
            )
        return self


class OidcSettings(Settings):
    """Sign-in by OpenID Connect: authorization code flow with PKCE.

    Args:
        issuer: Address of the provider, as it names itself.
        client_id: Id of this client at the provider.
        client_secret_env: Environment variable with the client's secret; omit it for a public
            client.
        address: Public address of this server. Register ``ADDRESS/sign-in/callback`` at the
            provider.
        user_claim: Claim with the name of the cluster's user. Choose one that users cannot change.
        scope: Requested scopes.
        session: Time after which a user signs in again.
    """

    issuer: str
    client_id: str
    client_secret_env: str | None = None
    address: str
    user_claim: str = "preferred_username"
    scope: str = "openid profile"
    session: Duration = Field(default=8 * 3600.0, gt=0)

    @field_validator("issuer", "address")
    @classmethod
    def _is_https(cls, given: str) -> str:
        parts = urlsplit(given)
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme != "https" and not (parts.scheme == "http" and local):
            raise ValueError(f"{given}: give an https:// address")
        return given.rstrip("/")


class SignInSettings(Settings):
    """Sign-in of people.

    Args:
        header: Sign-in by a reverse proxy.
        oidc: Sign-in by OpenID Connect.
        operators: Users with the role ``operator``. All others that sign in have the role ``user``.
    """

    header: HeaderSettings | None = None
    oidc: OidcSettings | None = None
    operators: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.header is None) == (self.oidc is None):
            raise ValueError("give either header or oidc")
        return self


class SignIn:
    """Sign-in of people, as an ASGI application and as a check of each request.

    Raises:
        ConfigError: A secret is missing or too short.
    """

    def __init__(self, settings: SignInSettings) -> None:
        self.settings = settings
        header, oidc = settings.header, settings.oidc
        self._proxies = [ipaddress.ip_network(one) for one in (header.proxies if header else ())]
        self._proxy_secret = _secret(header.secret_env) if header else None
        self._client_secret = _secret(oidc.client_secret_env) if oidc else None
        # With the client's secret, sessions outlive a restart of the server.
        self._key = self._client_secret or secrets.token_bytes(32)
        self._known: tuple[float, dict[str, Any], Any] | None = None
        if oidc is not None:
            need("authlib", "oidc", "sign-in by OpenID Connect")
            need("httpx", "oidc", "sign-in by OpenID Connect")

    @classmethod
    def from_yaml(cls, path: Path) -> SignIn:
        """Read a YAML file of `SignInSettings`.

        Raises:
            ConfigError: The file is not valid, or another user may write it.
        """
        return cls(SignInSettings.checked(read_trusted_yaml(path, "header"), str(path)))

    @property
    def address(self) -> str | None:
        """Path where a person signs in; None if a proxy does it."""
        return None if self.settings.oidc is None else SIGN_IN

    @property
    def proxies(self) -> tuple[str, ...]:
        """Addresses of the proxies that may name a user."""
        return () if self.settings.header is None else self.settings.header.proxies

    def serves(self, path: str) -> bool:
        """Return whether this application answers at a path."""
        return self.settings.oidc is not None and path in (SIGN_IN, CALLBACK, SIGN_OUT)

    # --- each request ----------------------------------------------------------------------------

    def who(self, headers: Sequence[tuple[bytes, bytes]], peer: str) -> Person | None:
        """Return the person that sends a request; None without sign-in.

        Args:
            headers: Headers of the request.
            peer: Address that the request comes from: the proxy's, if there is one.

        Raises:
            DeniedError: The request has the proxy's header but does not come from the proxy.
        """
        if self.settings.header is not None:
            return self._from_proxy(headers, peer)
        session = self._opened("session", _cookie(headers, self._cookie_name("session")))
        return None if session is None else self._person(str(session["user"]))

    def _from_proxy(self, headers: Sequence[tuple[bytes, bytes]], peer: str) -> Person | None:
        asked = self.settings.header
        assert asked is not None
        wanted = asked.name.lower().encode()
        given = [value for name, value in headers if name.lower() == wanted]
        if not given:
            return None
        if not self._is_proxy(headers, peer):
            raise DeniedError(403, f"header {asked.name} is accepted only from the reverse proxy")
        if len(given) > 1:
            raise DeniedError(400, f"header {asked.name} occurs {len(given)} times")
        try:
            name = given[0].decode().strip()
        except UnicodeDecodeError as error:
            raise DeniedError(400, f"header {asked.name} is not UTF-8") from error
        return self._person(name) if name else None

    def _is_proxy(self, headers: Sequence[tuple[bytes, bytes]], peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if not any(address in network for network in self._proxies):
            return False
        if self._proxy_secret is None:
            return True
        sent = [value for name, value in headers if name.lower() == SECRET_HEADER]
        return len(sent) == 1 and hmac.compare_digest(sent[0], self._proxy_secret)

    def _person(self, name: str) -> Person:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise DeniedError(403, "the user name is too long, or has control characters")
        role: Role = "operator" if name in self.settings.operators else "user"
        return Person(name, role)

    # --- OpenID Connect --------------------------------------------------------------------------

    @property
    def _oidc(self) -> OidcSettings:
        assert self.settings.oidc is not None
        return self.settings.oidc

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer `SIGN_IN`, `CALLBACK` and `SIGN_OUT`."""
        path, method = scope["path"], scope["method"]
        try:
            if path == SIGN_OUT:
                if method != "POST":
                    raise DeniedError(405, "sign out by POST")
                await _send(send, 204, [self._set("session", "", 0)])
                return
            if method != "GET":
                raise DeniedError(405, "sign in by GET")
            asked = parse_qs(scope["query_string"].decode("latin-1"))
            if path == SIGN_IN:
                await self._begin(send, asked)
            else:
                await self._finish(send, asked, scope["headers"])
        except DeniedError as refused:
            text = f"<p>Sign-in failed: {html.escape(refused.detail)}.</p>"
            again = f'<p><a href="{SIGN_IN}">Sign in again</a></p>'
            kind = (b"content-type", b"text/html; charset=utf-8")
            await _send(send, refused.status, [kind], f"<!doctype html>{text}{again}".encode())

    async def _begin(self, send: Send, asked: Mapping[str, list[str]]) -> None:
        about, _ = await self._provider()
        flow = {
            "state": secrets.token_urlsafe(24),
            "nonce": secrets.token_urlsafe(24),
            "verifier": secrets.token_urlsafe(48),
            "to": _local(asked.get("to", ["/"])[0]),
            "until": time.time() + FLOW_S,
        }
        async with self._client() as client:
            where, _ = client.create_authorization_url(
                about["authorization_endpoint"],
                state=flow["state"],
                nonce=flow["nonce"],
                code_verifier=flow["verifier"],
            )
        await _send(
            send, 302, [_header("location", where), self._set("flow", self._signed("flow", flow), FLOW_S)]
        )  # fmt: skip

    async def _finish(
        self, send: Send, asked: Mapping[str, list[str]], headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        oidc = self._oidc
        flow = self._opened("flow", _cookie(headers, self._cookie_name("flow")))
        one = {name: values[0] for name, values in asked.items()}
        if flow is None:
            raise DeniedError(400, "it was not begun in this browser, or took too long")
        if not hmac.compare_digest(one.get("state", "").encode(), flow["state"].encode()):
            raise DeniedError(400, "the provider's answer does not belong to it")
        if "error" in one:
            raise DeniedError(
                403, f"the provider says {one.get('error_description', one['error'])}"
            )
        if one.get("iss", oidc.issuer).rstrip("/") != oidc.issuer:
            raise DeniedError(400, "the answer comes from another provider")
        claims = await self._claims(one.get("code", ""), flow)
        name = claims.get(oidc.user_claim)
        if not isinstance(name, str) or not name:
            raise DeniedError(
                403, f"the provider gives no user name in the claim {oidc.user_claim}"
            )
        person = self._person(name)
        session = {"user": person.name, "until": time.time() + oidc.session}
        await _send(
            send,
            302,
            [
                _header("location", quote(flow["to"], safe="/?&=%:@+[],-._~!$'()*;")),
                self._set("session", self._signed("session", session), oidc.session),
                self._set("flow", "", 0),
            ],
        )

    async def _claims(self, code: str, flow: Mapping[str, Any]) -> Mapping[str, Any]:
        """Exchange a code for the user's claims, and check the provider's signature and claims."""
        import httpx
        from authlib.integrations.base_client.errors import OAuthError
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError

        oidc = self._oidc
        about, keys = await self._provider()
        try:
            async with self._client() as client:
                token = await client.fetch_token(
                    about["token_endpoint"], code=code, code_verifier=flow["verifier"]
                )
            decoded = jwt.decode(token["id_token"], keys, algorithms=_ALGORITHMS)
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {"iss": {"values": _spellings(oidc.issuer)}, "aud": {"value": oidc.client_id}},
                {"nonce": flow["nonce"], "client_id": oidc.client_id},
            )
            claims.validate(leeway=LEEWAY_S)
        except (OAuthError, httpx.HTTPError) as error:
            raise DeniedError(502, f"the provider gives no token: {error}") from error
        except (JoseError, KeyError, ValueError) as error:
            self._known = None  # its keys may have changed
            raise DeniedError(403, f"the provider's token is not valid: {error}") from error
        return dict(claims)

    async def _provider(self) -> tuple[dict[str, Any], Any]:
        """Return the provider's addresses and keys."""
        import httpx
        from joserfc.jwk import KeySet

        oidc = self._oidc
        if self._known is None or time.monotonic() - self._known[0] > KNOWN_S:
            try:
                async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
                    found = await client.get(f"{oidc.issuer}/.well-known/openid-configuration")
                    about = found.raise_for_status().json()
                    if about["issuer"].rstrip("/") != oidc.issuer:
                        raise DeniedError(502, f"the provider names itself {about['issuer']}")
                    keys = (await client.get(about["jwks_uri"])).raise_for_status().json()
                self._known = time.monotonic(), about, KeySet.import_key_set(keys)
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                raise DeniedError(502, f"{oidc.issuer} does not answer as a provider") from error
        return self._known[1], self._known[2]

    def _client(self) -> Any:
        from authlib.integrations.httpx_client import AsyncOAuth2Client

        oidc = self._oidc
        secret = None if self._client_secret is None else self._client_secret.decode()
        return AsyncOAuth2Client(
            oidc.client_id,
            secret,
            scope=oidc.scope,
            redirect_uri=oidc.address + CALLBACK,
            code_challenge_method="S256",
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            timeout=TIMEOUT_S,
        )

    # --- cookies ---------------------------------------------------------------------------------

    @property
    def _secure(self) -> bool:
        oidc = self.settings.oidc
        return oidc is not None and oidc.address.startswith("https:")

    def _cookie_name(self, what: str) -> str:
        return f"{'__Host-' if self._secure else ''}hpctwin-{what}"

    def _set(self, what: str, value: str, max_age_s: float) -> tuple[bytes, bytes]:
        # Lax: with Strict, a browser would not send it on the way back from the provider.
        secure = "; Secure" if self._secure else ""
        return _header(
            "set-cookie",
            f"{self._cookie_name(what)}={value}; Max-Age={round(max_age_s)}; Path=/; HttpOnly; "
            f"SameSite=Lax{secure}",
        )

    def _signed(self, what: str, content: Mapping[str, Any]) -> str:
        text = _base64(json.dumps(content).encode())
        return f"{text}.{_base64(self._mac(what, text))}"

    def _opened(self, what: str, given: str | None) -> dict[str, Any] | None:
        """Return the content of a signed text; None if it is forged or has expired."""
        text, _, mac = (given or "").partition(".")
        if not hmac.compare_digest(_base64(self._mac(what, text)).encode(), mac.encode()):
            return None
        content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=="))
        return content if content["until"] > time.time() else None

    def _mac(self, what: str, text: str) -> bytes:
        return hmac.new(self._key, f"hpctwin {what} {text}".encode(), hashlib.sha256).digest()


def _secret(variable: str | None) -> bytes | None:
    if variable is None:
        return None
    found = os.environ.get(variable, "").encode()
    if len(found) < 16:
        raise ConfigError(
            f"{variable}: environment variable has no secret of 16 characters or more"
        )
    return found


def _local(to: str) -> str:
    """Return a path of this server; ``/`` instead of an address elsewhere."""
    parts = urlsplit(to)
    fine = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    return to if fine and not parts.scheme and not parts.netloc and "\\" not in to else "/"


def _spellings(issuer: str) -> list[str]:
    return [issuer, f"{issuer}/"]


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _cookie(headers: Sequence[tuple[bytes, bytes]], name: str) -> str | None:
    for key, value in headers:
        if key.lower() == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(name)
            except CookieError:
                continue
            if found is not None:
                return found.value
    return None


def _header(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode(), value.encode("latin-1")


async def _send(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})
