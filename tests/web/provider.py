"""A small OpenID Connect provider on loopback, which can be made to err."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "hpctwin", "s" * 32


class Provider:
    """The provider: its user, the claims it changes, and what it was asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.user: str | None = "ann"
        self.changed: dict[str, Any] = {}
        self.key: Any = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig"})
        self.signing: Any = self.key
        self.algorithm = "RS256"
        self.asked: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}

    def about(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/keys",
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """The address that the user's browser is sent back to."""
        self.asked.append(asked)
        code = secrets.token_urlsafe(12)
        self._codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.address}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """The token for a code, once, to the client that holds the verifier."""
        asked = self._codes.pop(form.get("code", ""), None)
        proof = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = _packed(proof)
        client = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if (
            asked is None
            or asked["code_challenge_method"] != "S256"
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
            or client != f"{CLIENT}:{SECRET}"
        ):
            return None
        now = int(time.time())
        claims = {"iss": self.address, "sub": "1", "aud": CLIENT, "iat": now, "exp": now + 300,
                  "nonce": asked["nonce"], "preferred_username": self.user, **self.changed}  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": self.algorithm, "kid": "k1"}
        if self.algorithm == "HS256":
            text = f"{_packed(json.dumps(header).encode())}.{_packed(json.dumps(claims).encode())}"
            mac = hmac.new(self.signing, text.encode(), hashlib.sha256).digest()
            token = f"{text}.{_packed(mac)}"
        else:
            token = jwt.encode(header, claims, self.signing, algorithms=[self.algorithm])
        return {"access_token": "x", "token_type": "Bearer", "id_token": token}

    def sign_with_the_public_key(self) -> None:
        """The old confusion of a public key with a shared secret."""
        self.signing, self.algorithm = self.key.as_pem(private=False), "HS256"


def _packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("Location", one.authorize(asked))
                self.end_headers()
            elif parts.path == "/keys":
                self._json({"keys": [one.key.as_dict(private=False)]})
            else:
                self._json(one.about())

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {key: values[0] for key, values in parse_qs(text).items()}
            token = one.token(form, self.headers.get("Authorization", "Basic "))
            self._json(token or {"error": "invalid_grant"}, 200 if token else 400)

        def _json(self, content: Any, status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
