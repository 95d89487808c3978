"""People sign in by a reverse proxy's header or by OpenID Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.testclient import TestClient

from hpctwin.errors import HpctwinError
from hpctwin.web.server.api import application
from hpctwin.web.server.gate import Access, Gate
from hpctwin.web.server.serve import Listening, access_of
from hpctwin.web.server.sign_in import SignIn, SignInSettings
from tests.web.page import ACTS, Page, bearer
from tests.web.provider import CLIENT, SECRET, Provider, provider

PROXY = "192.0.2.7"
HIDDEN = "h" * 32
HEADER = {"name": "X-Remote-User", "proxies": [PROXY, "198.51.100.0/24"]}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    monkeypatch.setenv("PROXY_SECRET", HIDDEN)


@pytest.fixture
def oidc() -> Iterator[Provider]:
    with provider() as one:
        yield one


def client(page: Page, settings: dict[str, Any], peer: str = PROXY, **gate: Any) -> TestClient:
    """Somebody who connects from an address."""
    sign_in = SignIn(SignInSettings(**settings))
    access = Access((ACTS,), frozenset({"localhost"}), sign_in, **gate)
    app = Gate(application(page.source, kill_switch=page.switch, every_s=0.02), access)
    return TestClient(
        app, base_url="http://localhost", client=(peer, 5), follow_redirects=False
    )  # fmt: skip


def by_oidc(issuer: str, **more: Any) -> dict[str, Any]:
    about = {"issuer": issuer, "client_id": CLIENT, "client_secret_env": "OIDC_SECRET",
             "address": "http://localhost", **more}  # fmt: skip
    return {"oidc": about, "operators": ["root-ann"]}


# --- a proxy's header ---------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", [PROXY, "198.51.100.9", f"::ffff:{PROXY}"])
def test_the_proxy_names_the_user_and_settings_name_the_operators(make: Any, peer: str) -> None:
    with client(make(), {"header": HEADER, "operators": ["ana"]}, peer) as one:
        for name, role in (("ben", "user"), ("ana", "operator")):
            me = one.get("/api/v1/me", headers={"x-remote-user": name}).json()
            assert (me["name"], me["role"]) == (name, role)
        switch = "/api/v1/kill-switch"
        asked = {"thrown": True}
        assert one.put(switch, json=asked, headers={"X-Remote-User": "ben"}).status_code == 403
        assert one.put(switch, json=asked, headers={"X-Remote-User": "ana"}).status_code == 200


def test_without_the_header_nobody_is_signed_in_but_tokens_and_health_work(make: Any) -> None:
    with client(make(), {"header": HEADER}) as one:
        for headers in ({}, {"X-Remote-User": ""}, {"X-Remote-User": "  "}):
            assert one.get("/api/v1/state", headers=headers).status_code == 401
        assert one.get("/healthz").status_code == 200
        assert one.get("/api/v1/me", headers=bearer(ACTS)).json()["role"] == "operator"


@pytest.mark.parametrize("peer", ["192.0.2.8", "127.0.0.1", "198.51.101.1", "testclient"])
def test_the_header_from_elsewhere_is_refused(make: Any, peer: str) -> None:
    with client(make(), {"header": HEADER, "operators": ["ana"]}, peer) as one:
        for forwarded in ({}, {"X-Forwarded-For": PROXY}, {"Forwarded": f"for={PROXY}"}):
            answer = one.get("/api/v1/state", headers={"X-Remote-User": "ana", **forwarded})
            assert answer.status_code == 403
            assert "only from the reverse proxy" in answer.json()["detail"]


def test_a_proxy_on_this_host_needs_a_secret_that_other_users_do_not_have(make: Any) -> None:
    local = {"name": "X-Remote-User", "proxies": ["127.0.0.1"]}
    with pytest.raises(HpctwinError, match="secret_env: a proxy on this host needs a secret"):
        SignInSettings(header=local)
    settings = {"header": {**local, "secret_env": "PROXY_SECRET"}}
    with client(make(), settings, "127.0.0.1") as one:
        for told in ({}, {"X-Hpctwin-Proxy": "h" * 31}, {"X-Hpctwin-Proxy": ""}):
            headers = {"X-Remote-User": "ben", **told}
            assert one.get("/api/v1/state", headers=headers).status_code == 403
        headers = {"X-Remote-User": "ben", "X-Hpctwin-Proxy": HIDDEN}
        assert one.get("/api/v1/state", headers=headers).status_code == 200


def test_a_header_that_occurs_twice_or_is_no_name_is_refused(make: Any) -> None:
    with client(make(), {"header": HEADER}) as one:
        twice = [("X-Remote-User", "ben"), ("x-remote-user", "ana")]
        assert one.get("/api/v1/state", headers=twice).status_code == 400
        for bad in ("a" * 129, "a\tb", "evil\u202e".encode()):
            answer = one.get("/api/v1/state", headers=[(b"x-remote-user", bad)])  # type: ignore[list-item]
            assert answer.status_code in (400, 403), bad


def test_a_page_of_another_site_does_not_act_with_the_users_sign_in(make: Any) -> None:
    page = make()
    with client(page, {"header": HEADER, "operators": ["ana"]}) as one:
        signed = {"X-Remote-User": "ana"}
        for foreign in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
                        {"Sec-Fetch-Site": "same-site"}):  # fmt: skip
            answer = one.put(
                "/api/v1/kill-switch", json={"thrown": True}, headers={**signed, **foreign}
            )
            assert answer.status_code == 403
            assert not page.switch.exists()
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        answer = one.put("/api/v1/kill-switch", json={"thrown": True}, headers={**signed, **own})
        assert answer.status_code == 200


# --- OpenID Connect -----------------------------------------------------------------------------------


def signed_in(one: TestClient, to: str = "/job/1?x=1") -> httpx.Response:
    """Go through the provider, as a browser does; the answer to its callback."""
    begun = one.get("/sign-in", params={"to": to})
    assert begun.status_code == 302
    back = httpx.get(begun.headers["location"]).headers["location"]
    assert back.startswith("http://localhost/sign-in/callback?")
    return one.get(back)  # type: ignore[return-value]


def test_a_user_signs_in_stays_so_and_signs_out(make: Any, oidc: Provider) -> None:
    with client(make(), by_oidc(oidc.address)) as one:
        refused = one.get("/api/v1/state")
        assert refused.status_code == 401
        assert refused.headers["x-hpctwin-sign-in"] == "/sign-in"
        answer = signed_in(one)
        assert (answer.status_code, answer.headers["location"]) == (302, "/job/1?x=1")
        me = one.get("/api/v1/me").json()
        assert (me["name"], me["role"], me["sign_in"]) == ("ann", "user", "/sign-in")
        assert one.put("/api/v1/kill-switch", json={"thrown": True}).status_code == 403
        assert one.get("/sign-out").status_code == 405
        assert one.post("/sign-out").status_code == 204
        assert one.get("/api/v1/me").status_code == 401
    (asked,) = oidc.asked
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["state"]) >= 22
    assert len(asked["nonce"]) >= 22


def test_an_operator_signs_in_and_a_restart_keeps_the_session(make: Any, oidc: Provider) -> None:
    oidc.user = "root-ann"
    page = make()
    with client(page, by_oidc(oidc.address)) as one:
        signed_in(one)
        assert one.put("/api/v1/kill-switch", json={"thrown": True}).status_code == 200
        cookies = dict(one.cookies)
    with client(page, by_oidc(oidc.address)) as again:
        again.cookies.update(cookies)
        assert again.get("/api/v1/me").json()["role"] == "operator"


def test_cookies_are_out_of_reach_of_scripts_other_sites_and_plain_http(
    make: Any, oidc: Provider
) -> None:
    page = make()
    with client(page, by_oidc(oidc.address)) as one:
        for set_ in signed_in(one).headers.get_list("set-cookie"):
            assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(set_.split("; "))
    with client(page, by_oidc(oidc.address, address="https://twin.example")) as one:
        (set_,) = one.get("/sign-in").headers.get_list("set-cookie")
        assert set_.startswith("__Host-hpctwin-flow=")
        assert "; Secure" in set_
        assert "Domain" not in set_


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": "other"}, {"nonce": None}, {"aud": "another"}, {"iss": "http://evil.example"},
        {"exp": 1000}, {"sub": None}, {"aud": [CLIENT, "x"], "azp": "x"}, {"preferred_username": ""},
        {"preferred_username": 7}, {"preferred_username": None},
    ],
)  # fmt: skip
def test_a_token_that_is_not_for_this_sign_in_is_refused(
    make: Any, oidc: Provider, changed: dict[str, Any]
) -> None:
    oidc.changed = changed
    with client(make(), by_oidc(oidc.address)) as one:
        answer = signed_in(one)
        assert answer.status_code == 403
        assert "Sign-in failed" in answer.text
        assert one.get("/api/v1/me").status_code == 401


def test_a_token_signed_by_another_key_is_refused(make: Any, oidc: Provider) -> None:
    with provider() as other, client(make(), by_oidc(oidc.address)) as one:
        oidc.signing = other.key
        assert signed_in(one).status_code == 403
        oidc.sign_with_the_public_key()
        assert signed_in(one).status_code == 403


def test_a_callback_needs_the_state_of_this_browser_and_counts_once(
    make: Any, oidc: Provider
) -> None:
    page = make()
    with client(page, by_oidc(oidc.address)) as ann, client(page, by_oidc(oidc.address)) as eve:
        begun = eve.get("/sign-in")
        back = httpx.get(begun.headers["location"]).headers["location"]
        # Ann is lured to the address by which Eve's account would sign in.
        assert ann.get(back).status_code == 400
        ann.get("/sign-in")
        assert ann.get(back).status_code == 400
        state = parse_qs(urlsplit(back).query)["state"][0]
        assert eve.get(f"/sign-in/callback?state={state}x&code=1").status_code == 400
        assert eve.get(f"/sign-in/callback?state={state}&error=access_denied").status_code == 403
        assert eve.get(back).status_code == 302
        assert eve.get(back).status_code == 400


def test_forged_and_expired_sessions_do_not_count(
    make: Any, oidc: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpctwin.web.server import sign_in

    with client(make(), by_oidc(oidc.address, session="1h")) as one:
        signed_in(one)
        good = one.cookies["hpctwin-session"]
        text, _, mac = good.partition(".")
        for bad in ("", ".", text, f"{text}.", f"x{text}.{mac}", f"{text}.{mac[:-1]}", "é"):
            one.cookies.clear()
            headers = [(b"cookie", f"hpctwin-session={bad}".encode("latin-1"))]
            assert one.get("/api/v1/me", headers=headers).status_code == 401, bad  # type: ignore[arg-type]
        headers = [(b"cookie", f"hpctwin-session={good}".encode())]
        assert one.get("/api/v1/me", headers=headers).status_code == 200  # type: ignore[arg-type]
        now = sign_in.time.time()
        monkeypatch.setattr(sign_in.time, "time", lambda: now + 3601)
        assert one.get("/api/v1/me", headers=headers).status_code == 401  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "to",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "\\", ""],
)
def test_the_way_back_leads_nowhere_else(make: Any, oidc: Provider, to: str) -> None:
    with client(make(), by_oidc(oidc.address)) as one:
        assert signed_in(one, to).headers["location"] == "/"


def test_a_provider_that_does_not_answer_is_named(make: Any) -> None:
    with client(make(), by_oidc("http://127.0.0.1:9")) as one:
        answer = one.get("/sign-in")
        assert answer.status_code == 502
        assert "http://127.0.0.1:9 does not answer" in answer.text
        assert one.get("/healthz").status_code == 200


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("operators: [ana]", "give either header or oidc"),
        ("header: {name: X-User, proxies: [nowhere]}", "nowhere"),
        ("header: {name: 'X User', proxies: [192.0.2.1]}", "name"),
        ("header: {name: X-User, proxies: []}", "proxies"),
        ("header: {name: X-User, proxies: [192.0.2.1], secret_env: NOT_SET}", "NOT_SET"),
        ("oidc: {issuer: http://a.example, client_id: a, address: https://b.example}", "https://"),
        ("oidc: {issuer: https://a.example, client_id: a, address: b.example}", "https://"),
        ("oidc: {issuer: https://a.example, client: a, address: https://b.example}", "client"),
    ],
)
def test_settings_that_will_not_do_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "sign-in.yaml"
    path.write_text(text)
    with pytest.raises(HpctwinError, match=says):
        access_of(Listening(sign_in=path))


def test_with_sign_in_no_token_is_made_up_and_names_can_be_hidden(tmp_path: Path) -> None:
    path = tmp_path / "sign-in.yaml"
    path.write_text("header: {name: X-Remote-User, proxies: [192.0.2.1]}")
    access = access_of(
        Listening(host="192.0.2.2", behind_proxy=True, sign_in=path, hide_names=True)
    )
    assert access.tokens == ()
    assert access.hide_names
    with pytest.raises(HpctwinError, match="--no-token does not work with --sign-in"):
        access_of(Listening(sign_in=path, no_token=True))
