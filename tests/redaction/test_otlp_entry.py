# SPDX-License-Identifier: Apache-2.0
"""``taskhistory_otlp``: OTLP behind a policy by environment variables alone, and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.redaction.otlp import TaskHistoryOtlpExporter, policy_of_environment
from tests.redaction.test_leaks import all_of, receiver

PROGRAM = """if True:
    import importlib.metadata, json, logging
    from opentelemetry import trace
    from opentelemetry.sdk._configuration import _BaseConfigurator
    from opentelemetry.sdk import _configuration
    from otel_taskhistory.redaction.otlp import TaskHistoryOtlpExporter
    from otel_taskhistory.exporter import TaskHistoryExporter
    said = []
    class Noting(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
    logging.getLogger("otel_taskhistory").addHandler(Noting())
    known = {"taskhistory": TaskHistoryExporter, "taskhistory_otlp": TaskHistoryOtlpExporter}
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    known["otlp_proto_http"] = known["otlp"] = OTLPSpanExporter
    import os
    names = os.environ["OTEL_TRACES_EXPORTER"].split(",")
    _configuration._init_tracing({name: known[name] for name in names})
    at_start = list(said)
    with trace.get_tracer("x").start_as_current_span(
        "chat model-1", attributes={"input.value": "the prompt", "gen_ai.system": "openai"}
    ):
        pass
    trace.get_tracer_provider().shutdown()
    print(json.dumps([at_start, said]))
"""


def in_a_program(**environ: str) -> Any:
    """What the program says of itself, set up by variables as auto-instrumentation does it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        env={"PATH": "", "HOME": "/nonexistent", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("policy", [None, "ids_only", "Scrub"])
def test_the_safe_pair_keeps_contents_here(tmp_path: Path, policy: str | None) -> None:
    """Nothing is warned about; what leaves is as the variable says."""
    environ = {} if policy is None else {"OTEL_TASKHISTORY_REMOTE_POLICY": policy}
    with receiver() as (address, bodies):
        at_start, said = in_a_program(
            OTEL_TRACES_EXPORTER="taskhistory,taskhistory_otlp",
            OTEL_TASKHISTORY_DIRECTORY=str(tmp_path),
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=address,
            **environ,
        )
    assert (at_start, said) == ([], [])
    sent = all_of(bodies)
    assert b"chat model-1" in sent
    assert b"openai" in sent
    assert (b"the prompt" in sent) is (policy == "Scrub")


def test_plain_otlp_beside_the_history_is_warned_about_at_the_start(tmp_path: Path) -> None:
    """Before any span, once, and with what to do."""
    with receiver() as (address, _):
        at_start, said = in_a_program(
            OTEL_TRACES_EXPORTER="taskhistory,otlp",
            OTEL_TASKHISTORY_DIRECTORY=str(tmp_path),
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=address,
        )
    assert len(at_start) == 1
    assert "otlp of OTEL_TRACES_EXPORTER gets spans" in at_start[0]
    assert "taskhistory_otlp" in at_start[0]
    assert said == at_start


def test_the_policy_of_the_environment() -> None:
    """Its name in any case; anything else is one sentence."""
    assert policy_of_environment({}) == "ids_only"
    assert policy_of_environment({"OTEL_TASKHISTORY_REMOTE_POLICY": " No_Images "}) == "no_images"
    with pytest.raises(TaskHistoryError, match="OTEL_TASKHISTORY_REMOTE_POLICY='all' is no policy"):
        policy_of_environment({"OTEL_TASKHISTORY_REMOTE_POLICY": "all"})


def test_arguments_and_variables_are_those_of_the_otlp_exporter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is that exporter which sends."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    for arguments, endpoint in (
        ({}, "http://127.0.0.1:9/v1/traces"),
        ({"endpoint": "http://127.0.0.1:8/x"}, "http://127.0.0.1:8/x"),
    ):
        made = TaskHistoryOtlpExporter(**arguments)
        assert isinstance(made.exporter, OTLPSpanExporter)
        assert made.exporter._endpoint == endpoint
        made.shutdown()


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        ("", "pip install 'otel-taskhistory[otlp]'"),
        ("grpc", "pip install opentelemetry-exporter-otlp-proto-grpc"),
        ("carrier-pigeon", "use http/protobuf or grpc"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    protocol: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install or to set."""
    for package in ("http", "grpc"):
        name = f"opentelemetry.exporter.otlp.proto.{package}.trace_exporter"
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with pytest.raises(TaskHistoryError) as caught:
        TaskHistoryOtlpExporter()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
