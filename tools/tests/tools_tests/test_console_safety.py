"""Who may ask a console, and what its answers let a browser do."""

import asyncio
from pathlib import Path

import pytest

from tools_tests.console_rig import ORIGIN, TOKEN, Source, cluster, console
from waltz_tools.cli.app import app
from waltz_tools.cli.console import _token_of
from waltz_tools.console import app as console_app
from waltz_tools.console.safety import (
    MAX_SESSIONS,
    SESSION_SECONDS,
    Sessions,
    why_host_refused,
    why_origin_refused,
)
from waltz_tools.console.settings import ConsoleSettings, check_reach, check_token, is_loopback
from waltz_tools.errors import UsageError

API = [
    "/api/about", "/api/events", "/api/overview", "/api/partitions", "/api/partitions/0", "/api/nodes",
    "/api/findings", "/api/changes", "/api/records", "/api/record?partition=0&id=0", "/api/follow",
]  # fmt: skip


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8090", "127.0.0.1", "[::1]:8090", "[::1]", "localhost:8090", "LOCALHOST", "10.1.2.3:1"],
)
def test_an_address_and_localhost_are_names_of_the_console(host: str) -> None:
    assert why_host_refused(host, ()) == ""


@pytest.mark.parametrize(
    "host", ["evil.example:8090", "127.0.0.1.evil.example", "localhost.evil.example", "a"]
)
def test_another_name_is_refused_unless_it_was_allowed(host: str) -> None:
    """A name may be given the address of the console by whoever owns it: DNS rebinding."""
    assert "--allow-host" in why_host_refused(host, ("console.example",))
    assert why_host_refused(host, (host.partition(":")[0].upper(),)) == ""


def test_a_request_without_a_host_is_refused() -> None:
    assert why_host_refused(None, ()) == why_host_refused("", ()) == "the request names no host"


def test_a_request_of_another_page_is_refused() -> None:
    own = {"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"}
    assert why_origin_refused(own, "http", changes=True) == ""
    assert why_origin_refused({"Host": "127.0.0.1:1"}, "http", changes=False) == ""
    assert why_origin_refused({"Host": "a"} | ORIGIN, "http", changes=True) == ""
    assert "does not name the page" in why_origin_refused({"Host": "127.0.0.1:1"}, "http", changes=True)
    for origin in ("http://evil.example", "https://127.0.0.1:2", "http://127.0.0.1:2", "null"):
        assert "made this request" in why_origin_refused(own | {"Origin": origin}, "http", changes=False)
    behind_a_proxy = {"Host": "console.example", "Origin": "https://console.example"}
    assert why_origin_refused(behind_a_proxy, "http", changes=True) == ""
    assert why_origin_refused(own, "https", changes=True), (
        "with TLS of its own a page without it is another one"
    )
    for site in ("cross-site", "same-site"):
        assert "another site" in why_origin_refused(own | {"Sec-Fetch-Site": site}, "http", changes=False)


def test_sessions_end_and_are_bounded() -> None:
    now = 0.0
    sessions = Sessions(TOKEN, lambda: now)
    first = sessions.open()
    assert sessions.knows(first)
    assert not sessions.knows(None)
    assert not sessions.knows("something else")
    now = SESSION_SECONDS + 1
    assert not sessions.knows(first)
    names = [sessions.open() for _ in range(MAX_SESSIONS + 1)]
    assert [sessions.knows(name) for name in names] == [False, *[True] * MAX_SESSIONS]
    sessions.close(names[-1])
    sessions.close(None)
    assert not sessions.knows(names[-1])
    assert len(set(names)) == len(names)


def test_a_token_is_compared_as_a_whole() -> None:
    sessions = Sessions(TOKEN, lambda: 0.0)
    assert sessions.is_token(TOKEN)
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü"):
        assert not sessions.is_token(wrong)


def test_an_address_that_others_reach_needs_a_token_and_tls() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert is_loopback(host)
        check_reach(host, has_token_file=False, has_tls=False, allow_plaintext=False)
    for host in ("0.0.0.0", "::", "10.0.0.1", "console.example"):
        assert not is_loopback(host)
        with pytest.raises(UsageError, match="--token-file"):
            check_reach(host, has_token_file=False, has_tls=True, allow_plaintext=False)
        with pytest.raises(UsageError, match="--tls-certificate"):
            check_reach(host, has_token_file=True, has_tls=False, allow_plaintext=False)
        check_reach(host, has_token_file=True, has_tls=True, allow_plaintext=False)
        check_reach(host, has_token_file=True, has_tls=False, allow_plaintext=True)


def test_a_token_file_is_private_and_holds_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(UsageError, match="cannot be read"):
        _token_of(path)
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="others may read"):
        _token_of(path)
    path.chmod(0o600)
    assert _token_of(path) == TOKEN
    for wrong in ("", "short", "with a space in it ......", "umlaut-ü-umlaut-ü-umlaut"):
        with pytest.raises(UsageError, match="holds no token"):
            check_token(wrong, "it")


def test_the_command_line_is_refused_before_anything_starts() -> None:
    from typer.testing import CliRunner

    runner = CliRunner()
    for arguments, words in (
        (["--host", "0.0.0.0"], "--token-file"),
        (["--tls-key", "k.pem"], "belong together"),
        (["--port", "70000"], "--port"),
    ):
        done = runner.invoke(app, ["console", "-c", "client.yaml", *arguments])
        assert done.exit_code != 0
        assert words in f"{done.output}{done.exception}"


@pytest.mark.parametrize("path", API)
async def test_nothing_is_shown_without_a_session(path: str) -> None:
    async with console() as rig, rig.stranger() as stranger:
        async with stranger.get(path) as answer:
            assert answer.status == 401
            assert "log in" in (await answer.json())["error"]
        assert rig.source.asked == 0, "a stranger does not make the console ask the cluster"


async def test_the_token_opens_a_session_and_a_wrong_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_app, "WRONG_TOKEN_SECONDS", 0.01)
    async with console(login=False) as rig:
        for wrong in ({"token": "x"}, {"token": 7}, {}):
            status, body = await rig.post("/api/login", wrong)
            assert (status, body) == (401, {"error": "this is not the token of this console"})
        assert (await rig.get("/api/about"))[0] == 401
        async with rig.client.post("/api/login", json={"token": TOKEN}, headers=ORIGIN) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert (await rig.get("/api/about"))[0] == 200
        assert (await rig.post("/api/logout", {}))[0] == 200
        assert (await rig.get("/api/about"))[0] == 401


@pytest.mark.parametrize("path", ["/api/events", "/api/follow?partition=3"])
async def test_a_stream_ends_with_its_session(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_app, "BEAT_SECONDS", 0.05)
    async with console() as rig, rig.client.get(path) as stream, asyncio.timeout(30):
        assert await stream.content.readline()
        assert (await rig.post("/api/logout", {}))[0] == 200
        async with rig.log.client() as client:
            await client.append(partition=3, data=b"a secret")
        assert b"a secret" not in await stream.read()


async def test_a_forged_request_and_a_rebound_name_are_refused() -> None:
    async with console() as rig:
        assert (await rig.get("/api/about", Host="evil.example"))[0] == 403
        assert (await rig.get("/", Host="evil.example"))[0] == 403
        assert (await rig.get("/api/about", Origin="http://evil.example"))[0] == 403
        assert (await rig.get("/api/overview", **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
        async with rig.client.post("/api/append", json={}) as answer:
            assert answer.status == 403, "without a word about the page that asks"
        async with rig.client.post("/api/login", data="token=x", headers=ORIGIN) as answer:
            assert answer.status == 415, "a form of another page cannot send JSON"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{", {}),
        (b"[" * 100_000, {}),
        (b"\xff", {}),
        (b"{}", {"Content-Encoding": "gzip"}),
        (b"{}", {"Content-Encoding": "deflate"}),
    ],
)
async def test_a_body_that_cannot_be_read_is_the_sender_s_mistake(
    body: bytes, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    headers |= ORIGIN | {"Content-Type": "application/json; charset=nonsense"}
    async with (
        console(login=False) as rig,
        rig.client.post(
            "/api/login", data=body, headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer,
    ):
        assert answer.status == 400
    assert [record for record in caplog.records if record.exc_info and record.name.startswith("waltz")] == []


async def test_every_answer_forbids_what_is_not_ours() -> None:
    async with console() as rig:
        for path in ("/", "/assets/main.js", "/api/overview", "/api/nothing", "/assets/nothing", "/nothing"):
            async with rig.client.get(path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"


async def test_only_its_own_files_are_served() -> None:
    async with console() as rig:
        for name in ("..%2Fapp.py", "%2e%2e/app.py", "__init__.py", "main.js/", ""):
            async with rig.client.get(f"/assets/{name}") as answer:
                assert answer.status == 404


async def test_payloads_and_appends_need_their_permission() -> None:
    settings = ConsoleSettings(TOKEN, interval_seconds=0.05, allow_data=False)
    async with console(settings=settings) as rig:
        for path in ("/api/records", "/api/record?id=0", "/api/follow"):
            status, body = await rig.get(path)
            assert (status, "shows no data" in str(body["error"])) == (403, True)
        status, body = await rig.post("/api/append", {"partition": 0, "data": "x"})
        assert (status, "--allow-append" in str(body["error"])) == (403, True)
        assert (await rig.page("/api/about"))["allow_data"] is False


async def test_pages_hold_no_secret_and_no_script_of_their_own() -> None:
    hostile = cluster(1)
    name = "<script>alert(1)</script>"
    source = Source(
        type(hostile)(
            name, *(getattr(hostile, one) for one in ("cluster_key", "servers", "nodes", "partitions"))
        )
    )
    async with console(source) as rig:
        async with rig.client.get("/") as answer:
            text = await answer.text()
        assert "onclick" not in text
        assert "style=" not in text
        assert TOKEN not in text
        async with rig.client.get("/api/overview") as answer:
            assert answer.content_type == "application/json"
            assert TOKEN not in await answer.text()
            assert "key" not in (await answer.json())
