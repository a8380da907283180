# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory receive`` as a process: what is sent, what is answered, what is there then."""

from __future__ import annotations

import gzip
import importlib.util
import json
import signal
import socket
import subprocess
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="an extra")

from click.testing import CliRunner, Result
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskTracer
from otel_taskhistory.cli.receive import TOKEN_VARIABLE, receive_command
from otel_taskhistory.errors import TaskHistoryError
from tests.processes import one, rows
from tests.recorded import one_task

from .receiving import (
    JSON,
    PROTOBUF,
    Receiver,
    connected,
    known,
    post,
    request,
    span,
    text,
    trace_id,
)

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """One that several tests send to, each traces of its own."""
    with Receiver(tmp_path_factory.mktemp("received") / "history") as running:
        yield running


def run(directory: Path, *options: str) -> Result:
    """The command in this process, for what it refuses before it receives."""
    return CliRunner().invoke(receive_command, ["--directory", str(directory), *options])


# --- senders ------------------------------------------------------------------------------------


def exporter(kind: str, signal_: str, **options: Any) -> Any:
    """The official exporter for Python."""
    module = {"protobuf": "proto", "json": "json"}[kind]
    name = {"traces": ("trace_exporter", "Span"), "logs": ("_log_exporter", "Log")}[signal_]
    where = f"opentelemetry.exporter.otlp.{module}.http.{name[0]}"
    pytest.importorskip(f"opentelemetry.exporter.otlp.{module}.http")
    return getattr(importlib.import_module(where), f"OTLP{name[1]}Exporter")(**options)


@pytest.mark.parametrize("kind", ["protobuf", "json"])
@pytest.mark.parametrize("packed", ["none", "gzip", "deflate"])
def test_the_official_exporter_for_python(
    receiver: Receiver, kind: str, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent's tracer makes is the same task here as where it is recorded directly."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", packed)
    sender = exporter(kind, "traces", endpoint=f"{receiver.address}/v1/traces")
    provider = TracerProvider(resource=Resource({"service.name": f"agent-{kind}-{packed}"}))
    provider.add_span_processor(BatchSpanProcessor(sender))
    task_id = one_task(TaskTracer(provider), "sent from elsewhere", steps=3)
    provider.shutdown()
    with TaskHistory(receiver.directory) as history:
        task, steps = history.task(task_id), history.steps(task_id)
        assert (task.status, task.goal, task.result) == (
            "succeeded",
            "sent from elsewhere",
            "all done",
        )
        assert [(step.step_index, step.decision, step.tool_name) for step in steps] == [
            (1, "answer 1", "look"),
            (2, "answer 2", "look"),
            (3, "answer 3", "look"),
        ]
        assert json.loads(steps[2].prompt or "")[-1]["parts"][0]["content"] == "go on after 2"
        assert (task.input_tokens, task.output_tokens) == (30, 6)


@pytest.mark.parametrize("kind", ["protobuf", "json"])
def test_log_records_of_spans(receiver: Receiver, kind: str) -> None:
    """They come beside their spans; those outside of spans are passed over, which is said."""
    sender = exporter(kind, "logs", endpoint=f"{receiver.address}/v1/logs")
    logs = LoggerProvider(resource=Resource({"service.name": f"logs-{kind}"}))
    logs.add_log_record_processor(SimpleLogRecordProcessor(sender))
    tracer = TracerProvider().get_tracer("tests")
    with tracer.start_as_current_span("said within") as within:
        logs.get_logger("tests").emit(event_name="event.of.it", body={"said": kind})
    logs.get_logger("tests").emit(event_name="outside", body="passed over")
    logs.shutdown()
    trace = f"{within.get_span_context().trace_id:032x}"
    found = rows(receiver.directory, "SELECT event_name, body FROM logs WHERE trace_id = ?", trace)
    assert [(name, json.loads(body)) for name, body in found] == [("event.of.it", {"said": kind})]
    outside = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "x"}}]}]}]}
    told = receiver.post(outside, "/v1/logs").json["partialSuccess"]
    assert told["rejectedLogRecords"] == "0"
    assert "not part of any span" in told["errorMessage"]


# --- what is answered ---------------------------------------------------------------------------


@pytest.mark.parametrize("packing", [None, "gzip", "deflate", "raw deflate", "two members"])
def test_what_was_answered_with_200_is_there(receiver: Receiver, packing: str | None) -> None:
    """For whoever looks, before the answer comes, in any of the ways to compress it."""
    trace = trace_id()
    body = json.dumps(request(span(trace, 1), span(trace, 2, 1))).encode()
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed, encoding = {
        None: (body, "identity"),
        "gzip": (gzip.compress(body), "gzip"),
        "deflate": (zlib.compress(body), "deflate"),
        "raw deflate": (raw.compress(body) + raw.flush(), "deflate"),
        "two members": (gzip.compress(body[:50]) + gzip.compress(body[50:]), "gzip"),
    }[packing]
    answer = receiver.post(packed, Content_Encoding=encoding)
    found = {span_id for its_trace, span_id in known(receiver.directory) if its_trace == trace}
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"{}", JSON)
    assert found == {f"{1:016x}", f"{2:016x}"}


def test_an_empty_request_is_a_good_one(receiver: Receiver) -> None:
    """In protobuf it has no bytes at all."""
    for body, kind in ((b"", PROTOBUF), (b"{}", JSON), (b'{"resourceSpans": []}', JSON)):
        answer = receiver.post(body, Content_Type=kind)
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert answer.body == (b"" if kind == PROTOBUF else b"{}")


def test_what_is_sent_again_is_there_once(receiver: Receiver) -> None:
    """Senders that got no answer send again."""
    trace = trace_id()
    body = request(span(trace, 1), span(trace, 2, 1))
    assert [receiver.post(body).status for _ in range(3)] == [200, 200, 200]
    count = "SELECT count(*) FROM spans WHERE trace_id = ?"
    assert one(receiver.directory, count, trace) == 2


def test_what_cannot_be_kept_is_told_and_costs_nothing_else(receiver: Receiver) -> None:
    """Partial success, with the number and the reason, in the form of the request."""
    trace = trace_id()
    bad = span(trace, 2, traceId="0" * 32)
    answer = receiver.post(request(span(trace, 1), bad, "no span", span(trace, 3)))
    assert answer.status == 200
    assert answer.json == {
        "partialSuccess": {
            "rejectedSpans": "2",
            "errorMessage": "1 × span: traceId is missing or zero; 1 × span: not a JSON object",
        }
    }
    assert {(trace, f"{number:016x}") for number in (1, 3)} <= known(receiver.directory)


def test_partial_success_in_protobuf(receiver: Receiver) -> None:
    """As the specification's own classes read it."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    sent = service.ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    trace = trace_id()
    spans.add(trace_id=bytes.fromhex(trace), span_id=bytes(7) + b"\1", name="good")
    spans.add(trace_id=bytes.fromhex(trace), span_id=b"", name="bad")
    answer = receiver.post(sent.SerializeToString(), Content_Type=PROTOBUF)
    assert (answer.status, answer.headers["content-type"]) == (200, PROTOBUF)
    told = service.ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert told.rejected_spans == 1
    assert "spanId" in told.error_message
    assert (trace, f"{1:016x}") in known(receiver.directory)


def test_what_cannot_be_read_is_answered_as_the_specification_says(receiver: Receiver) -> None:
    """400 with a ``google.rpc.Status`` in the form of the request; nothing of it is kept."""
    status_pb2 = pytest.importorskip("google.rpc.status_pb2")
    whole = json.dumps(request(span(trace_id(), 1))).encode()
    for body in (
        whole[:-20],
        b"",
        b"null",
        b"[]",
        b'"text"',
        b'{"resourceSpans": 5}',
        b'{"something": []}',
        b'{"resourceLogs": []}',
        b"[" * 100_000,
        b'{"resourceSpans": ' + b"9" * 5_000 + b"}",
    ):
        answer = receiver.post(body)
        assert (answer.status, answer.json["code"]) == (400, 3), body[:40]
        assert answer.json["message"]
        assert answer.headers["content-type"] == JSON
    for body in (b"\xff" * 50, b"\x0a\x7fshort", whole):
        answer = receiver.post(body, Content_Type=PROTOBUF)
        assert (answer.status, answer.headers["content-type"]) == (400, PROTOBUF)
        status = status_pb2.Status.FromString(answer.body)
        assert status.code == 3
        assert status.message
    for packed, encoding in (
        (gzip.compress(whole)[:-5], "gzip"),
        (gzip.compress(whole)[:30], "gzip"),
        (gzip.compress(whole) + b"more", "gzip"),
        (whole, "gzip"),
        (zlib.compress(whole)[:-3], "deflate"),
        (zlib.compress(whole) + b"more", "deflate"),
        (gzip.compress(whole), "deflate"),
    ):
        answer = receiver.post(packed, Content_Encoding=encoding)
        assert (answer.status, answer.json["code"]) == (400, 3)


@pytest.mark.parametrize(
    ("status", "path", "headers"),
    [
        (404, "/v1/metrics", {}),
        (404, "/v1/traces/", {}),
        (404, "/", {"Method": "GET"}),
        (404, "/-/taskhistory/", {"Method": "GET"}),
        (405, "/v1/traces", {"Method": "GET"}),
        (405, "/v1/traces", {"Method": "PUT"}),
        (405, "/v1/traces", {"Method": "OPTIONS"}),
        (415, "/v1/traces", {"Content_Type": "text/plain"}),
        (415, "/v1/traces", {"Content_Type": "application/x-www-form-urlencoded"}),
        (415, "/v1/traces", {"Content_Type": ""}),
        (415, "/v1/traces", {"Content_Encoding": "br"}),
        (415, "/v1/traces", {"Content_Encoding": "gzip, gzip"}),
        (421, "/v1/traces", {"Host": "evil.example"}),
        (403, "/v1/traces", {"Origin": "http://evil.example"}),
        (403, "/v1/traces", {"Origin": "null"}),
        (403, "/v1/traces", {"Origin": "http://evil.example", "Method": "OPTIONS"}),
    ],
)
def test_other_requests_are_refused(
    receiver: Receiver, status: int, path: str, headers: dict[str, str]
) -> None:
    """With a reason in JSON; and no page of another site is ever allowed to send or to read."""
    trace = trace_id()
    answer = receiver.post(request(span(trace, 1)), path, **headers)
    assert answer.status == status
    assert answer.json["message"]
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert trace not in {found for found, _ in known(receiver.directory)}
    if status == 405:
        assert answer.headers["allow"] == "POST"


def test_a_sender_that_asks_first_is_told_to_go_on(receiver: Receiver) -> None:
    """Expect: 100-continue, which curl sends with large bodies."""
    trace = trace_id()
    body = json.dumps(request(span(trace, 1))).encode()
    ask = (
        f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
        f"Content-Length: {{}}\r\nExpect: 100-continue\r\n\r\n"
    )
    with connected(receiver.port, ask.format(len(body)).encode()) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    with connected(receiver.port, ask.format(10**12).encode()) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


# --- who may send -------------------------------------------------------------------------------


def test_elsewhere_a_random_token_is_needed(tmp_path: Path) -> None:
    """It is told on stderr in the form in which senders take it; exporters can be given it so."""
    with Receiver(tmp_path / "history", "--host", "0.0.0.0", tells=2) as receiver:
        trace = trace_id()
        body = request(span(trace, 1))
        refused = receiver.post(body)
        assert (refused.status, refused.json["code"]) == (401, 16)
        assert receiver.post(body, Authorization="Bearer wrong").status == 401
        assert receiver.post(body, f"/v1/traces?token={'x' * 43}").status == 401
        assert known(receiver.directory) == set()
        assert receiver.process.stderr is not None
        told = [receiver.process.stderr.readline().strip() for _ in range(3)][-1]
        name, _, value = told.partition("=")
        assert name == "OTEL_EXPORTER_OTLP_HEADERS"
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(name, value)
            provider = TracerProvider()
            allowed = exporter("protobuf", "traces", endpoint=f"{receiver.address}/v1/traces")
            provider.add_span_processor(BatchSpanProcessor(allowed))
            task_id = one_task(TaskTracer(provider), "with the token")
            provider.shutdown()
        with TaskHistory(receiver.directory) as history:
            assert history.task(task_id).goal == "with the token"


def test_a_token_of_ones_own_is_needed_here_too_and_not_printed(tmp_path: Path) -> None:
    """On a machine that others use as well."""
    with Receiver(tmp_path / "history", environ={TOKEN_VARIABLE: TOKEN}) as receiver:
        body = request(span(trace_id(), 1))
        assert receiver.post(body).status == 401
        assert receiver.post(body, Authorization=f"Bearer {TOKEN}").status == 200
        status, errors = receiver.end()
    assert status == 0
    assert TOKEN not in errors


def test_only_some_services(tmp_path: Path) -> None:
    """With ``--service`` others are told; by default all that send here may write here."""
    ours, others = trace_id(), trace_id()
    with Receiver(tmp_path / "history", "--service", "desk", "--service", "front") as receiver:
        assert receiver.post(request(span(ours, 1), service="desk")).body == b"{}"
        told = receiver.post(request(span(others, 1), service="web")).json["partialSuccess"]
        assert told["rejectedSpans"] == "1"
        assert "--service" in told["errorMessage"]
    assert {trace for trace, _ in known(tmp_path / "history")} == {ours}


def test_what_agents_write_here_themselves_stays_theirs(tmp_path: Path) -> None:
    """A receiver writes into an existing history beside its agent, which it claims for no one."""
    directory = tmp_path / "history"
    local = TaskHistoryExporter(directory, service_name="local-agent")
    try:
        with Receiver(directory) as receiver:
            trace = trace_id()
            assert receiver.post(request(span(trace, 1), service="remote")).status == 200
        provider = TracerProvider(resource=Resource({"service.name": "local-agent"}))
        provider.add_span_processor(BatchSpanProcessor(local))
        task_id = one_task(TaskTracer(provider, exporter=local))
        assert provider.force_flush()
    finally:
        local.shutdown()
    with TaskHistory(directory) as history:
        assert history.identity.service_name == "local-agent"
        assert {task.task_id for task in history.tasks(kind=None)} == {trace, task_id}


# --- start and end ------------------------------------------------------------------------------


def test_it_says_where_it_is_and_ends_when_told(tmp_path: Path) -> None:
    """The address alone on stdout; by Ctrl-C and by SIGTERM, with status 0 and without noise."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with Receiver(tmp_path / "history") as receiver:
            assert receiver.addresses == [receiver.address]
            assert receiver.post(request(span(trace_id(), 1))).status == 200
            with connected(receiver.port):  # somebody keeps a connection open
                status, errors = receiver.end(number)
        assert status == 0
        assert errors.splitlines() == [
            f"receiving into {tmp_path / 'history'}; Ctrl-C ends it",
            f"for senders: OTEL_EXPORTER_OTLP_ENDPOINT={receiver.address}",
            "received 1 span or log record in 1 request",
        ]


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    """It says what to do, and nothing was made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run(tmp_path / "history", "--port", str(port))
    assert isinstance(result.exception, TaskHistoryError)
    assert str(result.exception) == (
        f"port {port} is in use (another receive, or an OpenTelemetry Collector?): choose another"
        " with --port, or --port 0 for any that is free"
    )
    assert not (tmp_path / "history").exists()


def test_a_history_that_must_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    """Of another owner."""
    TaskHistoryExporter(tmp_path / "history", owner="runtime-api").shutdown()
    result = run(tmp_path / "history", "--owner", "host-agent", "--port", "0")
    assert isinstance(result.exception, TaskHistoryError)
    assert "runtime-api" in str(result.exception)


@pytest.mark.parametrize("name", ["uvicorn", "starlette", "opentelemetry.proto"])
def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One sentence with the command."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda wanted, *rest: None if wanted == name else found(wanted, *rest),
    )
    result = run(tmp_path / "history")
    assert str(result.exception) == f"receive needs {name}: pip install 'otel-taskhistory[otlp]'"
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize(
    "options",
    [("--token", "short"), ("--max-body", "0"), ("--max-body", "many"), ("--silent-after", "x")],
)
def test_bad_options_are_refused(tmp_path: Path, options: tuple[str, str]) -> None:
    """Before anything is made."""
    result = run(tmp_path / "history", "--port", "0", *options)
    assert result.exit_code != 0
    assert not (tmp_path / "history").exists()


# --- many ---------------------------------------------------------------------------------------


def test_sixteen_senders_at_once(tmp_path: Path) -> None:
    """All that each of them sent is there, once, in whole tasks; they share commits."""
    senders, requests, spans = 16, 8, 5
    with Receiver(tmp_path / "history") as receiver:

        def send(sender: int) -> list[tuple[str, int]]:
            traces = [trace_id() for _ in range(requests)]
            return [
                (
                    trace,
                    post(
                        receiver.port,
                        request(
                            *(span(trace, number, 1) for number in range(2, spans + 1)),
                            span(trace, 1, attributes=[text("gen_ai.operation.name", "chat")]),
                            service=f"sender-{sender}",
                        ),
                    ).status,
                )
                for trace in traces
            ]

        with ThreadPoolExecutor(senders) as threads:
            sent = [one_sent for some in threads.map(send, range(senders)) for one_sent in some]
        status, _ = receiver.end()
    assert status == 0
    assert {status for _, status in sent} == {200}
    found = rows(tmp_path / "history", "SELECT trace_id, span_count, status FROM tasks")
    assert {(trace, count) for trace, count, _ in found} == {(trace, spans) for trace, _ in sent}
    assert {status for _, _, status in found} == {"succeeded"}


def test_retention_goes_on_here(tmp_path: Path) -> None:
    """What is beyond the limits of the history goes while spans come."""
    environ = {"OTEL_TASKHISTORY_MAX_TASKS": "3"}
    chat = [text("gen_ai.operation.name", "invoke_agent")]
    with Receiver(tmp_path / "history", environ=environ) as receiver:
        traces = [trace_id() for _ in range(8)]
        for trace in traces:
            assert receiver.post(request(span(trace, 1, attributes=chat))).status == 200
        receiver.end()
    found = rows(tmp_path / "history", "SELECT task_id FROM tasks ORDER BY rowid")
    assert [task_id for (task_id,) in found] == traces[-3:]


def test_the_command_is_documented() -> None:
    """``--help`` names the paths, and what an answer means."""
    done = CliRunner().invoke(receive_command, ["--help"])
    assert "/v1/traces" in done.output
    assert "answered with 200" in done.output


def test_help_needs_no_server(tmp_path: Path) -> None:
    """Importing the command loads neither uvicorn nor Starlette."""
    program = (
        "import sys, otel_taskhistory.cli.receive, otel_taskhistory.cli.serve;"
        "print([name for name in ('uvicorn', 'starlette', 'datasette') if name in sys.modules])"
    )
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
