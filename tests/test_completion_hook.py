# SPDX-License-Identifier: Apache-2.0
"""The completion hook: content goes into the history, and nowhere else."""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import INVALID_SPAN

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor
from otel_taskhistory.completion_hook import TaskHistoryCompletionHook
from tests.store.deliveries import check, png, rows

CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


# As opentelemetry-util-genai has them.
class Modality(enum.StrEnum):
    IMAGE = "image"


@dataclass
class TextPart:
    content: str
    type: str = "text"


@dataclass
class BlobPart:
    mime_type: str | None
    modality: Modality
    content: bytes
    type: str = "blob"


@dataclass
class ToolCallRequestPart:
    arguments: Any
    name: str
    id: str | None
    type: str = "tool_call"


@dataclass
class Message:
    role: str
    parts: list[Any]
    name: str | None = None


@dataclass
class Tool:
    name: str
    type: str = "function"


@dataclass
class Recorded:
    """A process whose spans carry no content."""

    directory: Path
    provider: TracerProvider
    elsewhere: InMemorySpanExporter
    hook: TaskHistoryCompletionHook

    @property
    def tracer(self) -> Any:
        return self.provider.get_tracer("an.instrumentation")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        assert self.hook._outlet.flush(10_000)
        return rows(self.directory / "history.db", sql)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    """Such a process, with a second exporter that must see nothing."""
    exporter = TaskHistoryExporter(tmp_path, durability="normal")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    elsewhere = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(elsewhere))
    yield Recorded(tmp_path, provider, elsewhere, TaskHistoryCompletionHook())
    provider.shutdown()
    check(tmp_path / "history.db")


def content(picture: bytes) -> dict[str, Any]:
    """What one call sent and received."""
    return {
        "inputs": [
            Message(
                "user", [TextPart("what is this?"), BlobPart("image/png", Modality.IMAGE, picture)]
            )
        ],
        "outputs": [Message("assistant", [ToolCallRequestPart({"q": 1}, "look", "c1")])],
        "system_instruction": [TextPart("be brief")],
        "tool_definitions": [Tool("look")],
    }


def test_content_is_in_the_history_and_nowhere_else(recorded: Recorded) -> None:
    """Prompt with instructions, decision, picture; the span itself stays without."""
    picture = png(3, 400)
    with recorded.tracer.start_as_current_span("chat m", attributes=CALL) as span:
        recorded.hook.on_completion(**content(picture), span=span, log_record=None)
    (step,) = recorded.rows("SELECT * FROM steps")
    prompt, decision = json.loads(step["prompt"]), json.loads(step["decision"])
    assert [message["role"] for message in prompt] == ["system", "user"]
    assert prompt[0]["parts"] == [{"type": "text", "content": "be brief"}]
    assert decision[0]["parts"] == [
        {"arguments": {"q": 1}, "name": "look", "id": "c1", "type": "tool_call"}
    ]
    (shot,) = recorded.rows("SELECT role, status, path, media_type FROM screenshots")
    assert (shot["role"], shot["status"], shot["media_type"]) == ("input", "ok", "image/png")
    assert (recorded.directory / "artifacts" / shot["path"]).read_bytes() == picture
    (sent,) = recorded.elsewhere.get_finished_spans()
    assert dict(sent.attributes or {}) == CALL
    assert sent.events == ()
    (log,) = recorded.rows("SELECT event_name, attributes FROM logs")
    assert log["event_name"] == "gen_ai.client.inference.operation.details"
    assert json.loads(log["attributes"])["gen_ai.tool.definitions"]


def test_it_is_there_when_the_span_has_ended(recorded: Recorded) -> None:
    """The hook waits for nothing; the end of the span, which comes after it, does."""
    with recorded.tracer.start_as_current_span("chat m", attributes=CALL) as span:
        recorded.hook.on_completion(inputs=[Message("user", [TextPart("hi")])], span=span)
    (step,) = rows(recorded.directory / "history.db", "SELECT prompt, status FROM steps")
    assert "hi" in step["prompt"]


def test_the_same_conversation_is_kept_once(recorded: Recorded) -> None:
    """A conversation that grows costs what is new, as in spans."""
    messages: list[Any] = []
    for number in range(12):
        messages.append(Message("user", [TextPart(f"{number} " + "x" * 2000)]))
        with recorded.tracer.start_as_current_span("chat m", attributes=CALL) as span:
            recorded.hook.on_completion(inputs=messages, span=span)
    (size,) = recorded.rows("SELECT sum(length(text)) AS n FROM _contents")
    assert size["n"] < 12 * 2000 * 1.5
    assert len(recorded.rows("SELECT * FROM steps")) == 12


def test_nothing_to_say_or_nobody_to_say_it_of(recorded: Recorded) -> None:
    """No content, no span, a span that is not recorded: no record."""
    said = content(b"")
    off = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("t")
    with recorded.tracer.start_as_current_span("chat m", attributes=CALL) as span:
        recorded.hook.on_completion(inputs=[], outputs=[], system_instruction=[], span=span)
    recorded.hook.on_completion(**said)
    recorded.hook.on_completion(**said, span=INVALID_SPAN)
    with off.start_as_current_span("chat m") as unsampled:
        recorded.hook.on_completion(**said, span=unsampled)
    assert recorded.rows("SELECT * FROM logs") == []


def test_a_log_record_tells_the_span_too(recorded: Recorded) -> None:
    """Where no span is given."""

    @dataclass
    class Log:
        trace_id: int
        span_id: int
        trace_flags: int = 1

    with recorded.tracer.start_as_current_span("chat m", attributes=CALL) as span:
        context = span.get_span_context()
        log = Log(context.trace_id, context.span_id)
        recorded.hook.on_completion(inputs=[Message("user", [TextPart("hi")])], log_record=log)
    (step,) = recorded.rows("SELECT prompt FROM steps")
    assert "hi" in step["prompt"]


def test_whatever_it_is_given(recorded: Recorded) -> None:
    """Mappings, odd objects, later arguments: nothing raises, what can be kept is."""

    class Odd:
        def get_span_context(self) -> Any:
            raise RuntimeError("no")

    recursive: list[Any] = []
    recursive.append(recursive)
    with recorded.tracer.start_as_current_span("chat m", attributes=CALL) as span:
        recorded.hook.on_completion(
            inputs=[{"role": "user", "parts": [{"type": "text", "content": "a\ud83e"}]}],
            outputs=[Message("assistant", [object(), recursive])],
            span=span,
            something_new=1,
        )
        recorded.hook.on_completion(inputs=[1], span=Odd())
    (step,) = recorded.rows("SELECT prompt FROM steps")
    assert step["prompt"]
    recorded.hook.shutdown()
    recorded.hook.on_completion(inputs=[Message("user", [])], span=span)
    assert len(recorded.rows("SELECT * FROM logs")) == 1


def test_it_is_an_entry_point() -> None:
    """``OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK=taskhistory`` finds it."""
    (found,) = [
        one
        for one in entry_points(group="opentelemetry_genai_completion_hook")
        if one.name == "taskhistory"
    ]
    assert found.load() is TaskHistoryCompletionHook


def test_against_the_real_interface(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded and called by opentelemetry-util-genai itself, where it is installed."""
    genai = pytest.importorskip("opentelemetry.util.genai.completion_hook")
    handler = pytest.importorskip("opentelemetry.util.genai.handler")
    types = pytest.importorskip("opentelemetry.util.genai.types")
    wanted = inspect.signature(genai.CompletionHook.on_completion).parameters
    ours = inspect.signature(TaskHistoryCompletionHook.on_completion).parameters
    assert set(wanted) <= set(ours)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK", "taskhistory")
    loaded = genai.load_completion_hook()
    assert isinstance(loaded._wrapped, TaskHistoryCompletionHook)
    telemetry = handler.TelemetryHandler(
        tracer_provider=recorded.provider, completion_hook=recorded.hook
    )
    with telemetry.inference("p", request_model="m") as call:
        call.input_messages = [types.InputMessage("user", [types.TextPart("hello")])]
        call.output_messages = [types.OutputMessage("assistant", [types.TextPart("good day")])]
        call.system_instruction = [types.TextPart("be brief")]
    (step,) = recorded.rows("SELECT prompt, decision FROM steps")
    assert "hello" in step["prompt"]
    assert "be brief" in step["prompt"]
    assert "good day" in step["decision"]
