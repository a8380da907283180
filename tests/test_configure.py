# SPDX-License-Identifier: Apache-2.0
"""`configure`: what it wires, what it leaves alone, and what it warns about."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)

import otel_taskhistory
from otel_taskhistory.configure import configure
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from tests.processes import one, rows


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    """One that exists before we come."""
    provider = TracerProvider(shutdown_on_exit=False, sampler=ALWAYS_ON)
    yield provider
    provider.shutdown()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """Gives the warnings so far."""
    caplog.set_level(logging.WARNING, logger="otel_taskhistory")
    return lambda: [line.removeprefix("otel-taskhistory: ") for line in caplog.messages]


class Remote(SpanExporter):
    """Carries what it gets to who knows where."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.names += [span.name for span in spans]
        return SpanExportResult.SUCCESS


def processors(provider: TracerProvider) -> list[Any]:
    """Those of a provider, in the order they were added."""
    return list(provider._active_span_processor._span_processors)


def in_a_program(program: str, **environ: str) -> Any:
    """What a program prints as JSON; each has the global provider to itself."""
    import os

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_second_call_adds_nothing(tmp_path: Path, provider: TracerProvider) -> None:
    """The same processor, and a tracer for the same history."""
    configure(tmp_path, tracer_provider=provider)
    before = processors(provider)
    tasks = configure(tmp_path, tracer_provider=provider)
    assert processors(provider) == before
    assert len(before) == 1
    with tasks.task("a goal"):
        pass
    assert one(tmp_path, "SELECT count(*) FROM tasks") == 1


def test_a_second_place_on_one_provider_is_refused(
    tmp_path: Path, provider: TracerProvider
) -> None:
    """Another directory, or another owner of the same one."""
    configure(tmp_path / "one", tracer_provider=provider)
    for settings in ({"directory": tmp_path / "two"}, {"owner": "else"}):
        with pytest.raises(SettingsError, match="already"):
            configure(tracer_provider=provider, **settings)
    assert not (tmp_path / "two").exists()


def test_what_auto_instrumentation_has_put_there_is_used(
    tmp_path: Path, provider: TracerProvider
) -> None:
    """One exporter, now behind our processor too: steps are durable when they end."""
    exporter = TaskHistoryExporter(tmp_path)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tasks = configure(tracer_provider=provider)
    (_, ours) = processors(provider)
    assert isinstance(ours, TaskHistoryProcessor)
    assert ours.exporter is exporter
    with tasks.task("a goal"):
        pass
    assert one(tmp_path, "SELECT status FROM tasks") == "succeeded"
    provider.force_flush()
    assert one(tmp_path, "SELECT count(*) FROM spans") == 1
    assert one(tmp_path, "SELECT count(*) FROM timeline WHERE event = 'task.ended'") == 1


def test_after_a_shutdown_a_new_history_can_be_configured(
    tmp_path: Path, provider: TracerProvider
) -> None:
    """A processor that records no more does not count."""
    configure(tmp_path / "one", tracer_provider=provider)
    processors(provider)[0].shutdown()
    tasks = configure(tmp_path / "two", tracer_provider=provider)
    with tasks.task("a goal"):
        pass
    assert one(tmp_path / "two", "SELECT count(*) FROM tasks") == 1
    assert one(tmp_path / "one", "SELECT count(*) FROM tasks") == 0


def test_further_exporters_come_behind_a_batch_processor(
    tmp_path: Path, provider: TracerProvider
) -> None:
    """They get the same spans, and do not hold up the agent."""
    remote = Remote()
    tasks = configure(tmp_path, tracer_provider=provider, exporters=[remote])
    (_, batch) = processors(provider)
    assert isinstance(batch, BatchSpanProcessor)
    with tasks.task("a goal") as task, task.step("s"):
        pass
    provider.force_flush()
    assert remote.names == ["s", "invoke_agent"]


def test_no_provider_of_the_sdk_is_a_clear_error(tmp_path: Path) -> None:
    """Named by its type."""
    with pytest.raises(SettingsError, match="NoOpTracerProvider"):
        configure(tmp_path / "x", tracer_provider=trace.NoOpTracerProvider())  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


def test_without_a_provider_one_is_made_and_becomes_global(tmp_path: Path) -> None:
    """Unless it is not to; spans of other instrumentations then come to it too."""
    program = """if True:
        import json, sys
        from opentelemetry import trace
        import otel_taskhistory
        tasks = otel_taskhistory.configure({0!r}, set_global={1})
        with trace.get_tracer("other").start_as_current_span("foreign"):
            pass
        print(json.dumps(type(trace.get_tracer_provider()).__name__))
    """
    assert in_a_program(program.format(str(tmp_path / "a"), True)) == "TracerProvider"
    assert rows(tmp_path / "a", "SELECT name FROM spans") == [("foreign",)]
    assert in_a_program(program.format(str(tmp_path / "b"), False)) == "ProxyTracerProvider"
    assert rows(tmp_path / "b", "SELECT name FROM spans") == []


def test_a_global_provider_of_the_sdk_is_used(tmp_path: Path) -> None:
    """Whoever made it."""
    program = f"""if True:
        import json
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        import otel_taskhistory
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
        with otel_taskhistory.configure({str(tmp_path)!r}).task("a goal"):
            pass
        print(json.dumps(trace.get_tracer_provider() is provider))
    """
    assert in_a_program(program) is True
    assert one(tmp_path, "SELECT goal FROM tasks") == "a goal"


def test_a_global_provider_of_somebody_else_stays(tmp_path: Path) -> None:
    """What is begun with our tracer is recorded; that the rest is not is said once."""
    program = f"""if True:
        import json, logging
        from opentelemetry import trace
        import otel_taskhistory
        said = []
        class Noting(logging.Handler):
            def emit(self, record):
                said.append((record.name, record.getMessage()))
        logging.getLogger().addHandler(Noting())
        trace.set_tracer_provider(trace.NoOpTracerProvider())
        tasks = otel_taskhistory.configure({str(tmp_path)!r})
        with tasks.task("a goal"), trace.get_tracer("other").start_as_current_span("foreign"):
            pass
        print(json.dumps([type(trace.get_tracer_provider()).__name__, said]))
    """
    kind, said = in_a_program(program)
    assert kind == "NoOpTracerProvider"
    ((logger, line),) = said
    assert logger == "otel_taskhistory"
    assert "NoOpTracerProvider already and stays" in line
    assert rows(tmp_path, "SELECT name FROM spans") == [("invoke_agent",)]


def test_limits_and_samplers_of_the_environment_do_not_touch_our_provider(tmp_path: Path) -> None:
    """A provider that we make records every span, whole."""
    program = f"""if True:
        import json
        import otel_taskhistory
        with otel_taskhistory.configure({str(tmp_path)!r}).task("a goal") as task:
            with task.step("s") as step:
                step.prompt("x" * 1000)
                for number in range(300):
                    step.set_attribute(f"a{{number}}", "y" * 100)
                    step.span.add_event(f"e{{number}}", {{"text": "z" * 100, "other": 1}})
        print(json.dumps(None))
    """
    limits = (
        *("ATTRIBUTE_VALUE_LENGTH", "ATTRIBUTE_COUNT", "SPAN_ATTRIBUTE_VALUE_LENGTH"),
        *("SPAN_ATTRIBUTE_COUNT", "SPAN_EVENT_COUNT", "SPAN_LINK_COUNT"),
        *("EVENT_ATTRIBUTE_COUNT", "LINK_ATTRIBUTE_COUNT"),
    )
    environ = {f"OTEL_{name}_LIMIT": "1" for name in limits}
    in_a_program(program, OTEL_TRACES_SAMPLER="always_off", **environ)
    assert rows(tmp_path, "SELECT goal, dropped FROM tasks") == [("a goal", 0)]
    assert one(tmp_path, "SELECT length(prompt) FROM steps") == 1000
    attributes, events = rows(tmp_path, "SELECT attributes, events FROM spans WHERE name = 's'")[0]
    assert json.loads(attributes)["a299"] == "y" * 100
    assert len(json.loads(events)) == 300
    assert json.loads(events)[0]["attributes"] == {"text": "z" * 100, "other": 1}


def test_a_disabled_sdk_records_nothing_and_makes_nothing(tmp_path: Path) -> None:
    """Neither a folder nor a thread; the agent works."""
    program = f"""if True:
        import json, threading
        import otel_taskhistory
        with otel_taskhistory.configure({str(tmp_path / "history")!r}).task("a goal") as task:
            with task.step("s") as step:
                step.prompt("what?")
        print(json.dumps(threading.active_count()))
    """
    assert in_a_program(program, OTEL_SDK_DISABLED="true") == 1
    assert not (tmp_path / "history").exists()


def test_without_an_sdk_provider_nothing_is_made(tmp_path: Path) -> None:
    """A tracer on the API alone: no file, no thread, and the SDK is not even loaded."""
    program = """if True:
        import json, sys, threading
        from otel_taskhistory.recording.tracer import TaskTracer
        with TaskTracer().task("a goal") as task, task.step("s") as step:
            step.prompt("what?")
            step.screenshot(b"x")
        print(json.dumps([threading.active_count(), "opentelemetry.sdk" in sys.modules,
            "otel_taskhistory.store" in sys.modules]))
    """
    environ = {"HOME": str(tmp_path), "OTEL_TASKHISTORY_DIRECTORY": str(tmp_path / "history")}
    assert in_a_program(program, **environ) == [1, False, False]
    assert list(tmp_path.iterdir()) == []


# --- warnings -----------------------------------------------------------------------------------


def test_an_exporter_that_carries_content_is_warned_about_once(
    tmp_path: Path, provider: TracerProvider, warnings: Any
) -> None:
    """By name, whether it was there or is added; what stays in memory is none."""
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    configure(tmp_path, tracer_provider=provider, exporters=[Remote()])
    configure(tmp_path, tracer_provider=provider)
    told = "Remote on this provider gets goals, prompts and results as they are; wrap it:"
    assert warnings() == [f"{told} RedactingExporter(Remote(...))"]


def test_an_exporter_that_redacts_is_not_warned_about(
    tmp_path: Path, provider: TracerProvider, warnings: Any
) -> None:
    """It says so itself."""
    remote = Remote()
    remote.redacts_content = True  # type: ignore[attr-defined]
    configure(tmp_path, tracer_provider=provider, exporters=[remote])
    assert warnings() == []


def test_the_console_is_warned_about(
    tmp_path: Path, provider: TracerProvider, warnings: Any
) -> None:
    """What an agent prints often ends in logs that are collected."""
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    configure(tmp_path, tracer_provider=provider)
    assert [line.split()[0] for line in warnings()] == ["ConsoleSpanExporter"]


@pytest.mark.parametrize(
    ("sampler", "keeps_all"),
    [
        (ALWAYS_ON, True),
        (DEFAULT_ON, True),  # every task is a root, and what has no parent is always taken
        (TraceIdRatioBased(1.0), True),
        (ParentBased(TraceIdRatioBased(1.0)), True),
        (ALWAYS_OFF, False),
        (DEFAULT_OFF, False),
        (TraceIdRatioBased(0.5), False),
        (ParentBased(TraceIdRatioBased(0.5)), False),
    ],
)
def test_a_sampler_that_leaves_out_tasks_is_warned_about(
    tmp_path: Path, warnings: Any, sampler: Sampler, keeps_all: bool
) -> None:
    """On a provider that is not of our making."""
    provider = TracerProvider(shutdown_on_exit=False, sampler=sampler)
    configure(tmp_path, tracer_provider=provider)
    provider.shutdown()
    said = warnings()
    assert len(said) == (0 if keeps_all else 1)
    assert keeps_all or ("samples" in said[0] and "OTEL_TRACES_SAMPLER" in said[0])


def test_limits_that_cut_prompts_are_warned_about(
    tmp_path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable that sets them."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "4096")
    provider = TracerProvider(
        shutdown_on_exit=False, sampler=ALWAYS_ON, span_limits=SpanLimits(max_span_attributes=16)
    )
    configure(tmp_path, tracer_provider=provider)
    provider.shutdown()
    length, count = warnings()
    assert "4096 characters" in length
    assert "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in length
    assert "keeps 16 attributes" in count
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in count


def test_the_function_is_called_whatever_was_imported_before(
    tmp_path: Path, provider: TracerProvider
) -> None:
    """``otel_taskhistory.configure`` may be the module of that name by now."""
    tasks = otel_taskhistory.configure(tmp_path, tracer_provider=provider)
    assert isinstance(tasks, TaskTracer)
