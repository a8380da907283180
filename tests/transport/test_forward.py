# SPDX-License-Identifier: Apache-2.0
"""``forward`` to a receiver that fails in every way: what arrives, what is told, what stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory.cli import cli
from otel_taskhistory.spans.otlp import items_in
from otel_taskhistory.spans.otlp_protobuf import spans_from_protobuf, spans_to_protobuf
from otel_taskhistory.transport.forwarder.posting import LONGEST_WAIT, retry_after
from tests.processes import listing, one
from tests.store.deliveries import NOON, own_step, own_task, own_tool, span, span_id, store, write
from tests.store.keeping import execute, record, task_spans, trace_id
from tests.transport.forwarding import Receiver, committed, environ, twice

Forward = Callable[..., Result]

TRANSIENT = {"status": 503, "headers": {"retry-after": "0"}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver for all tests of this module."""
    with Receiver(tmp_path_factory.mktemp("receiver")) as receiver:
        yield receiver


@pytest.fixture
def receiver(running: Receiver) -> Receiver:
    """The receiver, with nothing received and all accepted."""
    running.script()
    return running


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


@pytest.fixture
def forward(receiver: Receiver, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Forward:
    """Runs ``forward`` on the history, to the receiver."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def run(*arguments: str, url: str = receiver.url) -> Result:
        return CliRunner().invoke(
            cli,
            ["forward", "--endpoint", url, "--directory", str(directory), *arguments],
        )

    return run


def place(directory: Path) -> int:
    """How far the only destination has got."""
    return int(one(directory, "SELECT change FROM _forwards"))


def many(directory: Path, number: int) -> None:
    """A history of so many small spans, ten in a trace."""
    spans = [
        span(n, None if n % 10 == 0 else n - n % 10, trace_id=trace_id(1000 + n // 10))
        for n in range(number)
    ]
    with store(directory) as writer:
        write(writer, spans)


def the_sentence(result: Result) -> str:
    """What a failed run says at last, in one line."""
    assert result.exit_code == 1, result.output
    *_, last = result.stderr.splitlines()
    assert last.startswith("otel-taskhistory: forwarding to http")
    assert not result.stdout
    return last


# --- what arrives -------------------------------------------------------------------------------


def test_everything_arrives_once_in_the_order_of_commits(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """By the default policy, compressed, at the path of traces; a second time nothing is sent."""
    many(directory, 600)
    done = forward()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"sent 600 spans to {receiver.url}/v1/traces (ids_only)\n"
    assert set(receiver.kept()) == committed(directory)
    assert twice(receiver.kept()) == set()
    assert receiver.kept() == sorted(receiver.kept())
    first, *_ = receiver.requests()
    assert (first["path"], first["headers"]["content-encoding"]) == ("/v1/traces", "gzip")
    assert first["headers"]["content-type"] == "application/x-protobuf"
    assert len(receiver.requests()) == 2
    assert forward().stdout.startswith("sent 0 spans")
    assert len(receiver.requests()) == 2


def test_what_is_committed_later_arrives_later(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Late spans, spans that ended since and better versions; nothing of what was sent before."""
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2), own_step(3, end=None)])
        forward()
        assert [key[1] for key in receiver.kept()] == [span_id(2)]
        write(writer, [own_step(3), span(9, 2), own_task(1)])
        write(writer, [own_step(2, attributes={"more": "x" * 200})])
        forward()
    assert [key[1] for key in receiver.kept()] == [span_id(n) for n in (2, 3, 9, 1, 2)]


def test_a_task_that_was_interrupted_is_sent_closed(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """What a dead process left open ends when it was seen last, as an error.

    So what was done below it has a parent at the remote end, too.
    """
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2, end=None), own_tool(3, 2)])
        forward()
        assert [key[1] for key in receiver.kept()] == [span_id(3)]
    seen = one(directory, "SELECT seen_ns FROM _processes")
    forward("--policy", "ids_only")
    tool, task, step = receiver.spans()
    assert [found.span_id.hex() for found in (tool, task, step)] == [
        span_id(3),
        span_id(1),
        span_id(2),
    ]
    for found in (task, step):
        assert found.status.code == 2
        assert found.end_time_unix_nano == max(seen, found.start_time_unix_nano)
        said = {a.key: a.value.string_value for a in found.attributes}
        assert said["taskhistory.status"] == "interrupted"
    assert tool.status.code == 0
    assert step.parent_span_id == task.span_id


def test_each_endpoint_and_policy_gets_everything(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """How far one has got says nothing of another; --again begins anew."""
    record(directory, range(1, 3))
    for arguments in ((), ("--policy", "everything"), ("--again",)):
        receiver.script()
        forward(*arguments)
        assert len(receiver.kept()) == 6
        forward(*arguments[:2] if "--policy" in arguments else ())
        assert len(receiver.kept()) == 6
    receiver.script()
    forward(url=f"{receiver.url}/v1/traces?project=other")
    assert len(receiver.kept()) == 6


def test_headers_compression_and_environment_reach_the_endpoint(
    receiver: Receiver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenTelemetry's own exporters take them."""
    record(directory, range(1, 2))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    arguments = ["forward", "--header", "x-team=agents", "--compression", "none"]
    done = CliRunner().invoke(cli, [*arguments, "--directory", str(directory)])
    assert done.exit_code == 0, done.output
    (request,) = receiver.requests()
    assert request["headers"]["authorization"] == "Bearer abc"
    assert request["headers"]["x-team"] == "agents"
    assert "content-encoding" not in request["headers"]


# --- what would leave ---------------------------------------------------------------------------


def test_a_dry_run_prints_exactly_what_then_leaves_and_changes_nothing(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Request by request, what dead processes left open too; not a byte of the history changes."""
    record(directory, range(1, 4))
    many(directory, 600)
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2, end=None)])
    # As if it had been killed, and nobody had looked since.
    execute(directory, "UPDATE _processes SET ended_ns = NULL, lock = NULL, pid = 999999999")
    left_open = "SELECT id FROM _spans WHERE end_ns IS NULL"
    execute(directory, f"DELETE FROM _changes WHERE span IN ({left_open})")
    before = listing(directory)
    dry = forward("--dry-run", "--policy", "scrub")
    assert dry.exit_code == 0, dry.output
    assert listing(directory) == before
    assert receiver.requests() == []
    printed = [json.loads(line) for line in dry.stdout.splitlines()]
    forward("--policy", "scrub")
    arrived = [spans_from_protobuf(body) for body in receiver.bodies()]
    # A dry run prints what dead processes left open as a request of its own.
    assert spans_to_protobuf(printed[0]) == receiver.bodies()[0]
    assert [item for document in printed for item in items_in(document)] == [
        item for document in arrived for item in items_in(document)
    ]
    assert "spans would be sent to" in dry.stderr
    assert forward("--dry-run", "--policy", "scrub").stdout == ""


# --- an endpoint that is away -------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_endpoint_that_is_busy_is_tried_again(
    receiver: Receiver, directory: Path, forward: Forward, status: int
) -> None:
    """The same request again; what it carries arrives once."""
    record(directory, range(1, 3))
    receiver.script({"status": status, "headers": {"retry-after": "0"}}, {})
    done = forward()
    assert done.exit_code == 0, done.output
    assert [request["status"] for request in receiver.requests()] == [status, 200]
    assert twice(receiver.kept()) == set()
    assert f"it answered {status}; trying again" in done.stderr


def test_an_endpoint_that_stays_away_is_given_up_and_gone_on_with(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Exit status 1 and what is left, also where it asks for more time than there is."""
    record(directory, range(1, 3))
    hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    receiver.script({"status": 503, "headers": {"retry-after": hour}})
    said = the_sentence(forward())
    assert "it answered 503 and asks for" in said
    assert "6 spans of 2 traces wait to be sent" in said
    receiver.script(TRANSIENT)
    assert "it answered 503; 6 spans" in the_sentence(forward("--retry-for", "0"))
    assert place(directory) == 0
    receiver.script()
    assert forward().exit_code == 0
    assert set(receiver.kept()) == committed(directory)


def test_nobody_there(receiver: Receiver, directory: Path, forward: Forward) -> None:
    """Being offline loses nothing, and says so."""
    record(directory, range(1, 3))
    gone = forward("--retry-for", "0", url="http://127.0.0.1:9")
    assert "nothing listens there; 6 spans of 2 traces wait" in the_sentence(gone)
    gone = forward("--retry-for", "0", url="http://127.0.0.1:4317/v1/traces")
    assert "at port 4317 collectors speak gRPC" in the_sentence(gone)
    gone = forward("--retry-for", "0", url="http://nowhere.invalid")
    assert "its name cannot be resolved" in the_sentence(gone)


@pytest.mark.parametrize(("drop", "again"), [("before", set()), ("after", "all")])
def test_a_connection_that_breaks(
    receiver: Receiver, directory: Path, forward: Forward, drop: str, again: Any
) -> None:
    """Whether the request had arrived is not known, so it is sent again: at least once."""
    record(directory, range(1, 3))
    receiver.script({"drop": drop}, {})
    assert forward().exit_code == 0
    assert set(receiver.kept()) == committed(directory)
    assert twice(receiver.kept()) == (committed(directory) if again else set())


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("-5", 0.0),
        ("999999999999", LONGEST_WAIT),
        ("inf", LONGEST_WAIT),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:00:00 GMT", 0.0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", LONGEST_WAIT),
        ("Wed, 99 Oct 2026 07:28:30 GMT", None),
    ],
)
def test_how_long_an_endpoint_asks_for(asked: str, seconds: float | None) -> None:
    """Seconds or a date, never longer than the limit, never a reason to fail."""
    now = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)
    assert retry_after(asked, now) == seconds


# --- an endpoint that does not want everything --------------------------------------------------


def test_spans_that_an_endpoint_rejects_are_told_and_done_with(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Partial success: exit status 1 now, and the next time there is nothing to be sent."""
    record(directory, range(1, 3))
    receiver.script({"reject": 2, "says": "too \x1b[31mold"}, {})
    done = forward()
    assert done.exit_code == 1
    assert 'kept all but 2 of 6 spans and says "too' in done.stderr
    assert "\x1b" not in done.output
    assert done.stdout.endswith(f"sent 4 spans to {receiver.url}/v1/traces (ids_only), 2 refused\n")
    assert forward().exit_code == 0
    assert len(receiver.requests()) == 1


def test_one_span_that_is_refused_keeps_no_other_back(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """It is found, told with its ids and what the endpoint says, counted, and not sent again."""
    with store(directory) as writer:
        write(writer, [span(n, name="poison" if n in (7, 30) else "good") for n in range(1, 41)])
    receiver.script({"status": 400, "poison": ["poison"], "type": "text/plain", "body": "bad span"})
    done = forward()
    assert done.exit_code == 1
    assert f"span {span_id(7)} of trace {span(7).trace_id} was left out: it answered 400" in (
        done.stderr
    )
    assert '("bad span")' in done.stderr
    assert {key[1] for key in receiver.kept()} == {
        span_id(n) for n in range(1, 41) if n not in (7, 30)
    }
    assert twice(receiver.kept()) == set()
    assert "sent 38 spans" in done.stdout
    assert "2 refused" in done.stdout
    assert one(directory, "SELECT refused FROM _forwards") == 2
    receiver.script()
    assert forward().exit_code == 0
    assert receiver.requests() == []


def test_a_very_large_span_goes_alone_and_is_told_when_it_is_too_large(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Requests are bounded; a span that is larger is one by itself, and keeps no other back."""
    with store(directory) as writer:
        write(writer, [span(1)])
        write(writer, [span(2, attributes={"text": "many words " * 1_000_000})])
        write(writer, [span(3)])
    assert forward("--policy", "everything").exit_code == 0
    sizes = [request["bytes"] for request in receiver.requests()]
    assert len(sizes) == 3
    assert sizes[1] > 10_000_000
    receiver.script({"most": 1_000_000})
    done = forward("--policy", "everything", "--again")
    assert done.exit_code == 1
    assert f"span {span_id(2)}" in done.stderr
    assert "it answered 413: too large for it" in done.stderr
    assert [key[1] for key in receiver.kept()] == [span_id(1), span_id(3)]


def test_many_large_spans_are_several_requests(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """What is in memory and on its way at a time does not grow with the history."""
    with store(directory) as writer:
        for number in range(1, 13):
            write(writer, [span(number, attributes={"text": f"{number} words " * 100_000})])
    assert forward("--policy", "everything").exit_code == 0
    assert len(receiver.kept()) == 12
    assert max(request["bytes"] for request in receiver.requests()) < 4 * 2**20


# --- a wrong endpoint ---------------------------------------------------------------------------

PAGE = {"type": "text/html; charset=utf-8", "body": "<html>Welcome</html>"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 401}, "it answered 401: give it credentials it knows"),
        ({"status": 403, "type": "application/json", "body": '{"message": "no"}'}, '403 ("no")'),
        ({"status": 404, **PAGE}, "it answered 404: OTLP/HTTP is not spoken there"),
        ({"status": 405}, "it answered 405: OTLP/HTTP is not spoken there"),
        ({"status": 415}, "it does not take OTLP as protobuf, or only uncompressed"),
        ({"status": 302, "headers": {"location": "/login"}}, "a redirect"),
        ({"status": 308, "headers": {"location": "http://else/"}}, "a redirect"),
        ({"status": 200, **PAGE}, "it answered with text/html that is no answer of OTLP"),
        ({"status": 200, "type": "text/html", "body": ""}, "is no answer of OTLP"),
        ({"status": 200, "type": "text/plain", "body": "ok"}, "is no answer of OTLP"),
        ({"status": 200, "type": "application/json", "body": "[1]"}, "is no answer of OTLP"),
        ({"status": 200, "type": "application/json", "body": "{"}, "is no answer of OTLP"),
        ({"status": 200, "body": "base64://8="}, "is no answer of OTLP"),
        ({"status": 200, "body": "x" * 100_000}, "is no answer of OTLP"),
        ({"status": 400, "body": "base64:EgRuZWlu"}, 'it answered 400 ("nein")'),
        ({"status": 422}, "it answered 422"),
        (
            {"status": 422, "type": "application/json", "body": '{"detail": [{"msg": "x-id"}]}'},
            "x-id",
        ),
        ({"status": 400, "type": "application/json", "body": "[" * 50_000}, "it answered 400"),
    ],
)
def test_a_wrong_endpoint_is_told_in_one_sentence_and_nothing_is_acknowledged(
    receiver: Receiver, directory: Path, forward: Forward, answer: dict[str, Any], said: str
) -> None:
    """Cause and next move; when the setting is right, everything arrives."""
    record(directory, range(1, 3))
    receiver.script(answer)
    sentence = the_sentence(forward())
    assert said in sentence
    assert "6 spans of 2 traces wait to be sent" in sentence
    assert place(directory) == 0
    receiver.script()
    assert forward().exit_code == 0
    assert set(receiver.kept()) == committed(directory)


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "application/json", "body": "{}"},
        {"type": "application/json; charset=utf-8", "body": '{"partialSuccess":{}}'},
        {"type": "", "body": ""},
        {"status": 202, "type": "", "body": ""},
        {"type": "application/json", "body": ""},
    ],
)
def test_answers_of_other_receivers_are_understood(
    receiver: Receiver, directory: Path, forward: Forward, answer: dict[str, Any]
) -> None:
    """Some answer in JSON, some say no more than that it was accepted."""
    record(directory, range(1, 2))
    receiver.script(answer)
    assert forward().exit_code == 0


def test_partial_success_in_json(receiver: Receiver, directory: Path, forward: Forward) -> None:
    """As the Collector writes it where JSON was asked for."""
    record(directory, range(1, 2))
    body = '{"partialSuccess":{"rejectedSpans":"1","errorMessage":"why"}}'
    receiver.script({"type": "application/json", "body": body})
    done = forward()
    assert (done.exit_code, "2 spans" in done.stdout) == (1, True)
    assert 'says "why"' in done.stderr


def test_tls_that_is_wrong_is_told(directory: Path, forward: Forward, tmp_path: Path) -> None:
    """A certificate that is not trusted, and https where there is none; with it all arrives."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    file = tmp_path / "both.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", file, "-out", f"{file}c"),
        ],
        check=True,
        capture_output=True,
    )
    certificate = Path(f"{file}c")
    file.write_bytes(file.read_bytes() + certificate.read_bytes())
    record(directory, range(1, 2))
    with Receiver(tmp_path, file) as receiver:
        sentence = the_sentence(forward(url=receiver.url))
        assert "its certificate is not trusted (self" in sentence
        assert "--ca-file" in sentence
        sentence = the_sentence(forward("--ca-file", str(tmp_path), url=receiver.url))
        assert "certificate" in sentence
        assert forward("--ca-file", str(certificate), url=receiver.url).exit_code == 0
        assert set(receiver.kept()) == committed(directory)


def test_https_where_http_is_spoken(receiver: Receiver, directory: Path, forward: Forward) -> None:
    """The next move is in the sentence."""
    record(directory, range(1, 2))
    said = the_sentence(forward(url=receiver.url.replace("http", "https")))
    assert "it does not speak TLS: use http://" in said


def test_secrets_of_the_endpoint_are_in_no_output_and_not_in_the_history(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Neither credentials nor what is behind the question mark."""
    record(directory, range(1, 2))
    secret = receiver.url.replace("http://", "http://user:MARKER1@") + "?key=MARKER2"
    receiver.script({"status": 401}, {})
    arguments = ("--header", "x-key=MARKER3")
    refused = forward(*arguments, url=secret)
    assert refused.exit_code == 1
    taken = forward(*arguments, url=secret)
    assert taken.exit_code == 0
    assert "MARKER" not in refused.output + taken.output
    for file in directory.iterdir():
        assert b"MARKER" not in (file.read_bytes() if file.is_file() else b"")
    assert receiver.requests()[1]["headers"]["authorization"].startswith("Basic ")


# --- what else may be in the way ----------------------------------------------------------------


def test_without_a_history_or_an_endpoint(directory: Path, forward: Forward) -> None:
    """One sentence each, and nothing is made."""
    done = forward()
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "there is no history at" in done.stderr
    assert not directory.exists()
    done = forward("--policy", "scrub", "--dry-run")
    assert "there is no history at" in done.stderr
    record(directory, range(1, 2))
    done = forward(url="localhost:4318")
    assert "--endpoint must begin with http://" in done.stderr
    done = forward("--dry-run", "--follow")
    assert done.exit_code == 2


def test_without_an_http_client_it_says_what_to_install(directory: Path) -> None:
    """The extra is named."""
    record(directory, range(1, 2))
    program = (
        "import sys; sys.modules['requests'] = None\nfrom otel_taskhistory.cli import cli; cli()"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "forward", "--endpoint", "http://127.0.0.1:9"),
            *("--directory", str(directory)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environ(),
    )
    assert done.returncode == 1
    assert done.stderr == (
        "otel-taskhistory: forwarding needs an HTTP client: pip install 'otel-taskhistory[otlp]'\n"
    )


def test_a_netrc_does_not_replace_the_credentials_that_were_given(
    receiver: Receiver,
    directory: Path,
    forward: Forward,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The HTTP client would look into it by itself."""
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(file))
    record(directory, range(1, 2))
    forward("--header", "authorization=Bearer mine")
    (request,) = receiver.requests()
    assert request["headers"]["authorization"] == "Bearer mine"


def test_what_retention_took_before_is_told_once(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """Nothing is lost without a word."""
    from otel_taskhistory.settings import Settings
    from otel_taskhistory.store.pruning import remove_task

    record(directory, range(1, 3))
    receiver.script(TRANSIENT)
    forward("--retry-for", "0")
    remove_task(Settings.resolve(directory=directory), trace_id(1))
    receiver.script()
    done = forward()
    assert done.exit_code == 0
    assert "retention removed 3 spans before they were sent" in done.stderr
    assert "retention" not in forward().stderr


def test_a_hold_is_asked_for_and_ended_by_the_command(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """--hold begins it, a run without ends it."""
    record(directory, range(1, 2))
    forward("--hold")
    assert one(directory, "SELECT hold_until_ns FROM _forwards") > NOON
    forward()
    assert one(directory, "SELECT hold_until_ns FROM _forwards") is None


def test_a_policy_that_fails_for_a_span_lets_nothing_of_it_out(
    receiver: Receiver, directory: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather nothing than what it would have taken out; the others go."""
    import otel_taskhistory.redaction

    class Failing:
        def span(self, record: Any) -> Any:
            if record.span_id == span_id(2):
                raise RuntimeError("MARKER")
            return None if record.span_id == span_id(3) else replace(record, attributes={})

    monkeypatch.setattr(otel_taskhistory.redaction, "policy_named", lambda *_, **__: Failing())
    with store(directory) as writer:
        write(writer, [span(n, attributes={"said": "MARKER"}) for n in range(1, 6)])
    dry = forward("--dry-run")
    assert f"span {span_id(2)} of trace" in dry.stderr
    assert "3 spans would be sent" in dry.stderr
    assert "1 withheld" in dry.stderr
    done = forward()
    assert done.exit_code == 1
    assert "the policy failed (RuntimeError)" in done.stderr
    assert "3 spans" in done.stdout
    assert "1 withheld by the policy, 1 refused" in done.stdout
    assert "MARKER" not in done.output
    assert b"MARKER" not in b"".join(receiver.bodies())
    assert [key[1] for key in receiver.kept()] == [span_id(n) for n in (1, 4, 5)]
    assert forward().exit_code == 0


def test_what_cannot_be_sent_to_anybody_keeps_no_other_back(
    receiver: Receiver, directory: Path, forward: Forward
) -> None:
    """A time before 1970, a row that was spoilt: told, counted, and done with."""
    with store(directory) as writer:
        write(writer, [span(1), replace(span(2), start_ns=-5), span(3), span(4)])
    execute(directory, "UPDATE _spans SET attributes = '{' WHERE span_id = ?", span_id(3))
    dry = forward("--dry-run")
    assert f"span {span_id(2)} of trace {span(2).trace_id} would be left out: it has a time" in (
        dry.stderr
    )
    assert "row 3 of the spans would be left out: it cannot be read" in dry.stderr
    done = forward()
    assert done.exit_code == 1
    assert f"span {span_id(2)} of trace {span(2).trace_id} was left out" in done.stderr
    assert "row 3 of the spans was left out: it cannot be read" in done.stderr
    assert "sent 2 spans" in done.stdout
    assert [key[1] for key in receiver.kept()] == [span_id(1), span_id(4)]
    assert (forward().exit_code, place(directory)) == (0, 4)


def test_task_spans_are_what_the_numbers_above_say() -> None:
    """A task of one step is three spans."""
    assert len(task_spans(1)) == 3


def test_stats_and_doctor_say_how_far_each_destination_has_got(
    directory: Path, forward: Forward
) -> None:
    """What waits, what was refused, when somebody tried last; a warning when that is long ago."""
    many(directory, 3)
    assert forward().exit_code == 0
    listed = CliRunner().invoke(cli, ["stats", "--json", "--directory", str(directory)])
    (known,) = json.loads(listed.output)["forwards"]
    assert (known["policy"], known["left"], known["refused"]) == ("ids_only", 0, 0)
    assert known["sent"] > 0
    assert known["endpoint"].startswith("http://127.0.0.1:")
    more = [replace(one, trace_id="f" * 32) for one in task_spans(90)]
    with store(directory) as writer:
        write(writer, more)
    shown = CliRunner().invoke(cli, ["stats", "--directory", str(directory)]).output
    assert f"{len(more)} spans to be sent" in " ".join(shown.split())
    execute(directory, "UPDATE _forwards SET seen_ns = seen_ns - 2 * 86400 * 1000000000")
    found = CliRunner().invoke(cli, ["doctor", "--json", "--directory", str(directory)])
    assert found.exit_code == 1
    checks = {one["check"]: one for one in json.loads(found.output)["findings"]}
    assert checks["forward"]["severity"] == "warning"
    assert str(len(more)) in checks["forward"]["what"]
