# SPDX-License-Identifier: Apache-2.0
"""Scrubber: a secret goes wherever it stands, and nothing else does."""

from __future__ import annotations

import base64
import html
import json
import logging
import string
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_taskhistory.redaction import MASK, Scrubber
from otel_taskhistory.spans.record import EventRecord, LinkRecord, LogRecord, OriginRecord
from otel_taskhistory.spans.record import SpanRecord as Span

SECRET = 'Tr0ub4dor&3 "zoë\\'
NOTHING: Mapping[str, str] = {}


def scrub(text: Any, *secrets: str) -> Any:
    """A value scrubbed, whatever the environment of the test run holds."""
    return Scrubber(secrets, NOTHING).value(text)


# --- what looks like a secret --------------------------------------------------------------------

# Put together here, so that no scanner takes this file for a leak.
KEYS = {
    "OpenAI": "sk-" + "proj-" + "a1B2c3D4e5F6g7H8i9J0",
    "Anthropic": "sk-" + "ant-api03-" + "a1B2c3D4e5F6g7H8-_AA",
    "Google": "AI" + "za" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "Google OAuth": "ya" + "29.a0AfH6SMBx1y2z3A4b5C6d7E8",
    "AWS": "AK" + "IA" + "ABCDEFGHIJ234567",
    "GitHub": "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
    "GitHub fine": "github" + "_pat_" + "11ABCDEFG0abcdefghijkl_mnop",
    "GitLab": "gl" + "pat-" + "a1B2c3D4e5F6g7H8i9J0",
    "Slack": "xo" + "xb-" + "123456789012-abcdefGHIJKL",
    "Hugging Face": "h" + "f_" + "abcdefghijABCDEFGHIJabcdefghijABCD",
    "Groq": "gs" + "k_" + "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
    "Stripe": "sk" + "_live_" + "a1B2c3D4e5F6g7H8i9J0",
    "SendGrid": "SG.a1B2c3D4e5F6g7H8i9J0ab.a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8i9J0abc",
    "npm": "np" + "m_" + "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
    "Telegram": "123456789" + ":AA" + "F1a2B3c4D5e6F7g8H9i0J1k2L3m4N5o6P7q",
    "JWT": "ey" + "JhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjMifQ" + ".s1gnature-_x",
    "private key": "-----BEGIN RSA "
    "PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nx9f=\n-----END RSA "
    "PRIVATE KEY-----",
    "cut private key": "-----BEGIN " + "PRIVATE KEY-----\\nMIIEowIBAAKCAQEAx9f",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "use {} now",
        "key={}&next=1",
        "https://example.org/?a={}",
        '{{"a": "{}"}}',
        "['{}']",
        "a%3D{}",
        "line\\n{}\\nline",
    ],
)
def test_known_keys_are_masked(key: str, around: str) -> None:
    """Those of the large providers, wherever they stand in a text."""
    masked = scrub(around.format(key))
    assert MASK in masked
    for part in (key, key[8:20], key[-12:]):
        assert part not in masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password=hunter2", f"password={MASK}"),
        ("PASSWORD: hunter2, next", f"PASSWORD: {MASK}, next"),
        ("export DB_PASSWORD='hunter 2'", f"export DB_PASSWORD='{MASK}'"),
        ("mysql --password hunter2 -u root", f"mysql --password {MASK} -u root"),
        ('{"password": "hunter2"} is it', f'{{"password": "{MASK}"}} is it'),
        (
            r'say "{\"api_key\": \"abc\\\"d\", \"n\": 1}"',
            rf'say "{{\"api_key\": \"{MASK}\", \"n\": 1}}"',
        ),
        ("{'secret': 'x y'}", f"{{'secret': '{MASK}'}}"),
        ("API key: abc123", f"API key: {MASK}"),
        ("Authorization: Bearer abc.def", f"Authorization: {MASK}"),
        ("send Bearer abcdef0123456789", f"send Bearer {MASK}"),
        ("Basic dXNlcjpwYXNz", f"Basic {MASK}"),
        ("Cookie: sid=1; theme=dark\nHost: x", f"Cookie: {MASK}\nHost: x"),
        ("-H 'Set-Cookie: sid=1' x", f"-H 'Set-Cookie: {MASK}' x"),
        ("https://me:hunter2@example.org/a?b", f"https://me:{MASK}@example.org/a?b"),
        ("redis://:hunter2@h:6379", f"redis://:{MASK}@h:6379"),
        ("postgres://u:p:w@d@h/db", f"postgres://u:{MASK}@h/db"),
        ("/cb?access_token=abcdef123456&x=1", f"/cb?access_token={MASK}&x=1"),
        ("Server=h;Uid=sa;Pwd=hunter2;", f"Server=h;Uid=sa;Pwd={MASK};"),
        ("curl -u admin:hunter2 https://x", f"curl -u admin:{MASK} https://x"),
        ("<a><password>hunter2</password></a>", f"<a><password>{MASK}</password></a>"),
        ('{"password":"a"}\n{"password":"b"}', f'{{"password":"{MASK}"}}\n{{"password":"{MASK}"}}'),
        ('data: {"id_token": "abcd1234"}', f'data: {{"id_token": "{MASK}"}}'),
        ("SMTP_PASS=hunter2 run", f"SMTP_PASS={MASK} run"),
        ("aws_secret_access_key = abcd/ef+gh", f"aws_secret_access_key = {MASK}"),
    ],
)
def test_values_of_secret_names_are_masked(text: str, masked: str) -> None:
    """In prose, code, commands, headers, addresses; the rest of the text stays."""
    assert scrub(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "the risk-free way of a disk-based approach to a task-oriented life",
        "it used 812 input tokens, max_tokens: 4096, token_count=17, time_to_first_token=0.25",
        "token = get_token()",
        "def login(password: str) -> None:",
        "password is required, and bearer bonds need a basic understanding",
        "next_page_token: none; eos_token = '</s>'",
        "PWD=/home/agent",
        "all tests pass: yes, pass=12, and a passage=way",
        '<input type="password"> Enter it <b>here</b>',
        "docker run -u 1000:1000 image",
        '{"tokens": ["a"], "token": "hello", "logprob": -0.1}',
        "the author's keyboard: new; monkey=business; primary_key=id",
        "see https://example.org/a/b?page=2#token and mail me@example.org",
        "a hash 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        '{"usage": {"input_tokens": 812, "total_tokens": 852}, "n": 1.50, "big": 1e400}',
        '[{"role": "user", "parts": [{"type": "text", "content": "zoë \\u00e9 \\/ 😀"}]}]',
        '{"type":"object","properties":{"password":{"type":"string"}}}',
        base64.b64encode(b"a file without anything to hide in it").decode(),
        "",
        "x",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Not a character is changed, so that histories stay worth reading."""
    assert scrub(text) == text


def test_json_keeps_its_form() -> None:
    """Only the strings that hold a secret are written anew; repeated keys and digits stay."""
    text = (
        '{ "a" : 1.50,\n "password":"x", "password" : 12345, "b":[1e400, "é\\u00e9\\/"], "c":null}'
    )
    assert scrub(text) == text.replace('"x"', f'"{MASK}"').replace("12345", f'"{MASK}"')


def test_all_below_a_secret_key_is_masked() -> None:
    """Objects and lists keep their shape; yes, no and nothing stay."""
    said = {
        "cookies": [{"name": "sid", "age": 5}, "x", 1.5],
        "credentials": {"on": True, "no": None},
    }
    masked = {
        "cookies": [{"name": MASK, "age": MASK}, MASK, MASK],
        "credentials": {"on": True, "no": None},
    }
    assert scrub(said) == masked
    assert json.loads(scrub(json.dumps(said))) == masked


def test_an_item_that_names_a_secret_has_its_value_masked() -> None:
    """Headers and fields of forms are often lists of names and values."""
    said = {"headers": [{"name": "X-Api-Key", "value": "a"}, {"name": "Host", "value": "b"}]}
    masked = {"headers": [{"name": "X-Api-Key", "value": MASK}, {"name": "Host", "value": "b"}]}
    assert scrub(said) == masked
    assert json.loads(scrub(json.dumps(said))) == masked


# --- registered secrets --------------------------------------------------------------------------


def forms(secret: str) -> dict[str, str]:
    """Texts that hold a secret in one way or another."""
    inner = json.dumps({"note": secret})
    plain = secret.encode()
    return {
        "as it is": f"a {secret} b",
        "in JSON": json.dumps({"a": [secret]}),
        "in JSON, not ASCII": json.dumps({"a": [secret]}, ensure_ascii=False),
        "as a key": json.dumps({secret: 1}),
        "in JSON in JSON": json.dumps({"a": json.dumps([inner])}),
        "JSON in prose": f"it said {inner} then",
        "in a URL": f"https://example.org/?q={quote(secret)}&r=1",
        "in a URL, wholly": f"https://example.org/?q={quote(secret, safe='')}",
        "in HTML": f"<b>{html.escape(secret)}</b>",
        "in base64": base64.b64encode(f"some words {secret} and more".encode()).decode(),
        "in base64 of bytes": base64.b64encode(b"\x00\xff" + plain + b"\x81\x00\x01").decode(),
        "in base64, URL-safe": base64.urlsafe_b64encode(b"\xfb\xff\xfe" + plain)
        .decode()
        .rstrip("="),
        "in a data URL": "data:text/plain;base64," + base64.b64encode(plain).decode(),
        "in a data URL in JSON": json.dumps(
            {"url": "data:application/json;base64," + base64.b64encode(inner.encode()).decode()}
        ),
    }


def visible(value: Any) -> bytes:
    """All that a value shows, also of base64 in it and of JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    seen = [text.encode()]
    for run in "".join(c if c.isalnum() or c in "+/-_" else " " for c in text).split():
        for start in range(4):
            cut = run[start:].replace("-", "+").replace("_", "/")
            cut = cut[:-1] if len(cut) % 4 == 1 else cut
            seen.append(base64.b64decode(cut + "=" * (-len(cut) % 4)))
    return b"\n".join(seen)


@pytest.mark.parametrize("form", forms(SECRET).keys())
def test_a_registered_secret_is_masked_in_every_form(form: str) -> None:
    """As it is, and as JSON, URLs, HTML and base64 write it."""
    text = forms(SECRET)[form]
    masked = scrub(text, SECRET)
    shown = visible(masked)
    for part in (SECRET, json.dumps(SECRET)[1:-1], quote(SECRET), html.escape(SECRET), "Tr0ub4"):
        assert part.encode() not in shown
    assert masked != text


letters = st.text(
    string.ascii_letters + string.digits + "!#$&+/=?@_~-:. éß\"\\'", min_size=9, max_size=30
)


@given(secret=letters, before=st.text(max_size=30), after=st.text(max_size=30))
@example(secret="aaaaaaaaa", before="", after="a")
def test_any_registered_secret_is_masked_in_every_form(
    secret: str, before: str, after: str
) -> None:
    """Whatever it is made of, and whatever stands beside it."""
    secret = secret.strip()
    if len(secret) < 9:
        return
    scrubber = Scrubber([secret], NOTHING)
    for text in [*forms(secret).values(), before + secret + after]:
        masked = scrubber.text(text)
        assert secret not in masked.replace(MASK, "\0")
        assert scrubber.text(masked) == masked
    for form in ("in JSON", "in JSON in JSON", "as a key"):
        json.loads(scrubber.text(forms(secret)[form]))


def test_of_two_secrets_the_longer_one_goes_whole() -> None:
    """One that begins another does not leave the rest of it."""
    assert scrub("hunter2-and-more hunter2", "hunter2", "hunter2-and-more") == f"{MASK} {MASK}"


def test_a_numeric_secret_is_masked_as_a_number_too() -> None:
    """JSON stays JSON."""
    assert scrub('{"a": 73119842, "b": 7}', "73119842") == f'{{"a": "{MASK}", "b": 7}}'
    assert scrub({"a": 73119842, "b": 7.5}, "73119842") == {"a": MASK, "b": 7.5}


def test_secrets_of_the_environment_are_found() -> None:
    """By the names of variables, and as passwords in addresses; words and paths are none."""
    environ = {
        "MY_SERVICE_TOKEN": "q1w2e3r4t5y6",
        "DATABASE_URL": "postgres://me:s3cr3t%21word@db/x",
        "SECRET_NAME": "production",
        "AUTH_TOKEN_PATH": "abc/def12345",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/agent/key.json",
        "APP_SECRET": "dev",
        "EDITOR_TOKEN": "everyday",
    }
    scrubber = Scrubber(environ=environ)
    assert scrubber.text("q1w2e3r4t5y6") == MASK
    assert scrubber.text("s3cr3t!word or s3cr3t%21word") == f"{MASK} or {MASK}"
    for word in ("production", "abc/def12345", "/home/agent/key.json", "dev", "everyday"):
        assert scrubber.text(f"a {word} b") == f"a {word} b"


def test_secrets_that_come_later_are_found_and_stay_secrets() -> None:
    """Programs fill their environment late, and empty it again; memories do not last."""
    environ = {"A": "b"}
    scrubber = Scrubber(environ=environ)
    assert scrubber.text("say q1w2e3r4t5y6") == "say q1w2e3r4t5y6"
    environ["API_TOKEN"] = "q1w2e3r4t5y6"
    assert scrubber.text("say q1w2e3r4t5y6") == f"say {MASK}"
    del environ["API_TOKEN"]
    assert scrubber.text("say q1w2e3r4t5y6 again") == f"say {MASK} again"


# --- values and records ---------------------------------------------------------------------------

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.sampled_from(
        ["password", "token=abc123def", "Bearer abcdef012345", "{", '["', '\\"', "://a:b@"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.sampled_from(["password", "auth"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values)
@example({"Auth": "://:@@"})
def test_scrubbing_is_total_and_done_once(value: Any) -> None:
    """No value makes it raise, and a second time nothing changes."""
    scrubber = Scrubber((), NOTHING)
    once = scrubber.value(value)
    assert scrubber.value(once) == once


@given(values.filter(lambda value: not isinstance(value, bytes)))
def test_json_stays_json(value: Any) -> None:
    """With the same keys in the same order, and the same shape."""
    try:
        text = json.dumps(value)
    except TypeError:  # bytes in it
        return
    masked = json.loads(scrub(text))

    def same_shape(a: Any, b: Any) -> bool:
        if isinstance(a, dict):
            return isinstance(b, dict) and all(
                same_shape(x, y) for x, y in zip(a.values(), b.values(), strict=True)
            )
        if isinstance(a, list):
            return isinstance(b, list) and all(same_shape(x, y) for x, y in zip(a, b, strict=True))
        return a == b or isinstance(b, str)

    assert same_shape(value, masked)


def test_every_part_of_a_span_is_scrubbed_and_the_span_is_not_altered() -> None:
    """Names, attributes, events, links, status, resource and scope; ids and times stay."""
    secret = "0pen-sesame"
    span = Span(
        "ab" * 16,
        "cd" * 8,
        None,
        f"name {secret}",
        1,
        2,
        attributes={"a": secret, secret: [secret], "m": {"password": 1}, "b": secret.encode()},
        events=(EventRecord(secret, 3, {"e": secret}),),
        links=(LinkRecord("ef" * 16, "ab" * 8, f"v={secret}", 1, {"l": secret}),),
        resource=OriginRecord("", None, f"https://{secret}", {"r": secret}),
        scope=OriginRecord(secret, secret, secret, {"s": secret}),
        status_code="ERROR",
        status_message=secret,
        trace_state=f"v={secret}",
    )
    before = repr(span)
    masked = Scrubber([secret], NOTHING).record(span)
    assert repr(span) == before
    assert secret not in repr(masked)
    assert repr(masked).count(MASK) == 18
    assert (masked.trace_id, masked.span_id, masked.start_ns, masked.end_ns) == (
        "ab" * 16,
        "cd" * 8,
        1,
        2,
    )


def test_every_part_of_a_log_record_is_scrubbed() -> None:
    """Its body and attributes above all."""
    secret = "0pen-sesame"
    record = LogRecord(
        "ab" * 16,
        "cd" * 8,
        secret,
        body={"a": [secret]},
        attributes={"a": secret},
        severity_text=secret,
        resource=OriginRecord(attributes={"r": secret}),
        scope=OriginRecord(secret),
    )
    masked = Scrubber([secret], NOTHING).record(record)
    assert secret not in repr(masked)
    assert masked.trace_id == record.trace_id


def test_a_record_that_cannot_be_looked_through_is_kept_without_contents(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is not let through, not lost, and it is said; what failed may hold a secret and is not."""

    class Broken(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("hunter2")

    caplog.set_level(logging.WARNING, logger="otel_taskhistory")
    scrubber = Scrubber((), NOTHING)
    span = Span("ab" * 16, "cd" * 8, None, "n", 1, 2, attributes=Broken(a="b"), status_message="x")
    masked = scrubber.record(span)
    assert (masked.span_id, masked.attributes, masked.status_message) == ("cd" * 8, {}, None)
    assert scrubber.failures == 1
    assert "RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


class Odd:
    """An object that careless code has put into an attribute."""

    def __init__(self, shown: str) -> None:
        self.shown = shown

    def __str__(self) -> str:
        return self.shown


def test_objects_are_looked_at_as_they_are_shown() -> None:
    """For that is how they are stored."""
    fine = Odd("nothing")
    assert scrub([fine])[0] is fine
    assert scrub([Odd("password=hunter2")]) == [f"password={MASK}"]


# --- hostile texts --------------------------------------------------------------------------------

MEGABYTE = 2**20
HOSTILE = (
    *("a", "A", "1", "=", "-", "\\", '"', "'", " ", "\n", "[", "{", "@", ":", "%41", "é", "İ"),
    *("sk-", "eyJ", "-eyJ", "eyJ.", "SG.", "xoxb-", "1:AA", "AKIA", "ghp_", "://", "://:", "://a:"),
    *(
        "token",
        "token=",
        "token ",
        "password='",
        'password=\\"',
        "password:\\\\",
        "--token ",
        "key:",
    ),
    *(
        "bearer ",
        "Bearer a",
        "Basic a",
        "Cookie: ",
        "Authorization:",
        "api key ",
        "data:image/png;",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----a", "-----END ", "\\n", "a\\nb"),
    *('{"a":', '["', '{"password":', '"password":"', "a_", "a/", "aaaaaaaaaaaaaaaaaaaaaaaa="),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_megabyte_is_done(piece: str) -> None:
    """In time that is in proportion to it; anything worse would not end within the test's limit."""
    text = piece * (MEGABYTE // len(piece))
    scrubber = Scrubber([SECRET], NOTHING)
    scrubber.text(text)
    scrubber.text(json.dumps(json.dumps([text])))


def test_deep_nesting_is_done() -> None:
    """JSON in JSON, and lists in lists, however deep; what is too deep is still read as text."""
    text = json.dumps({"password": "hunter2"})
    for _ in range(12):
        text = json.dumps([text])
    assert "hunter2" not in scrub(text)
    assert scrub("[" * 100_000 + '"password=hunter2"').endswith(f'"password={MASK}"')
    deep: Any = "password=hunter2"
    for _ in range(500):
        deep = [deep]
    assert "hunter2" not in repr(scrub(deep))
