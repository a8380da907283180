# SPDX-License-Identifier: Apache-2.0
"""`import` of the files that collectors and SDKs write, whatever form they have."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_taskhistory.cli import cli
from otel_taskhistory.spans.otlp_protobuf import logs_to_protobuf, spans_to_protobuf
from otel_taskhistory.spans.otlp_write import logs_document, spans_document, to_line
from otel_taskhistory.spans.record import LogRecord
from tests.recorded import one_task, recording
from tests.store.deliveries import check, model, rows

SPANS = [spans_document([model(number, None)]) for number in range(1, 6)]
LINES = b"".join(to_line(one) for one in SPANS)
MESSAGES = [spans_to_protobuf(one) for one in SPANS]
LOG = LogRecord(
    SPANS[0]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"],
    f"{1:016x}",
    "gen_ai.choice",
    {"index": 0},
    time_ns=5,
)


def metrics() -> bytes:
    """An export request of metrics in protobuf."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "requests"
    metric.gauge.data_points.add().as_int = 3
    return bytes(request.SerializeToString())


def framed(messages: list[bytes]) -> bytes:
    """Each message behind its size, as the Collector's file exporter writes them."""
    return b"".join(struct.pack(">I", len(one)) + one for one in messages)


def zstd(data: bytes) -> bytes:
    """Compressed, in a frame."""
    return bytes(zstandard.ZstdCompressor().compress(data))


FORMS = {
    "lines": LINES,
    "gzip": gzip.compress(LINES),
    "gzip of several members": b"".join(gzip.compress(to_line(one)) for one in SPANS),
    "zstd": zstd(LINES),
    "zstd of several frames": b"".join(zstd(to_line(one)) for one in SPANS),
    "pretty": b"\n" + json.dumps(SPANS, indent=2).encode(),
    "protobuf with sizes": framed(MESSAGES),
    "protobuf with sizes, each compressed": framed([zstd(one) for one in MESSAGES]),
    "lines with sizes, each compressed": framed([zstd(to_line(one)) for one in SPANS]),
    "protobuf with sizes, all compressed": gzip.compress(framed(MESSAGES)),
    "one request in protobuf": spans_to_protobuf(
        spans_document([model(number, None) for number in range(1, 6)])
    ),
}


def imported(tmp_path: Path, *files: bytes) -> Result:
    """What the command says of these files."""
    paths = []
    for number, data in enumerate(files):
        paths.append(str(tmp_path / f"file{number}"))
        Path(paths[-1]).write_bytes(data)
    directory = str(tmp_path / "history")
    return CliRunner().invoke(cli, ["import", *paths, "--directory", directory])


def ids(tmp_path: Path) -> list[int]:
    """The numbers of the spans that are in the history."""
    database = tmp_path / "history" / "history.db"
    check(database)
    found = rows(database, "SELECT span_id FROM spans ORDER BY span_id")
    return [int(row["span_id"], 16) for row in found]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read(tmp_path: Path, form: str) -> None:
    """All of it, without being told what it is."""
    result = imported(tmp_path, FORMS[form])
    assert result.exit_code == 0, result.output
    assert "imported 5 spans" in result.output
    assert ids(tmp_path) == [1, 2, 3, 4, 5]


def test_logs_in_protobuf_are_read(tmp_path: Path) -> None:
    """Nothing says of which signal a request is; what makes sense counts."""
    result = imported(tmp_path, MESSAGES[0], logs_to_protobuf(logs_document([LOG])))
    assert result.exit_code == 0, result.output
    assert "1 span and 1 log record" in result.output


def test_metrics_are_passed_over(tmp_path: Path) -> None:
    """They are no error, and they are counted."""
    result = imported(tmp_path, framed([MESSAGES[0], metrics(), MESSAGES[1]]), metrics())
    assert result.exit_code == 0, result.output
    assert "2 × metrics" in result.output
    assert ids(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("form", "kept", "told"),
    [
        ("gzip", 5, "file0:6: the compressed file is cut"),
        ("zstd of several frames", 4, "file0:5: the compressed file is cut"),
        ("protobuf with sizes", 4, "file0:5: the message is cut, and with it the file"),
        ("one request in protobuf", 4, "file0:1: the file is cut or damaged from here on"),
        ("protobuf with sizes, all compressed", None, "is cut or damaged from here on"),
    ],
)
def test_what_is_cut_is_told_with_its_place(
    tmp_path: Path, form: str, kept: int | None, told: str
) -> None:
    """What came before is in; exit status 1."""
    result = imported(tmp_path, FORMS[form][:-7])
    assert result.exit_code == 1
    assert told in result.output
    if kept is not None:
        assert ids(tmp_path) == list(range(1, kept + 1))


def test_a_bad_message_costs_no_other(tmp_path: Path) -> None:
    """One that is no OTLP, one that is compressed wrongly, one of no JSON: each by its number."""
    bad = [b"\x0a\xff\xff\xff\xff\xff\xff", zstd(b"{}")[:-3] + b"xxx", b"{nothing"]
    result = imported(tmp_path, framed([MESSAGES[0], *bad, MESSAGES[1]]))
    assert result.exit_code == 1
    for number in (2, 3, 4):
        assert f"file0:{number}: " in result.output
    assert "3 could not be kept" in result.output
    assert ids(tmp_path) == [1, 2]


def test_without_the_package_the_file_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with the command that installs it."""
    import sys

    monkeypatch.setitem(sys.modules, "zstandard", None)
    result = imported(tmp_path, FORMS["zstd"])
    assert result.exit_code == 1
    assert "pip install 'otel-taskhistory[otlp]'" in result.output


def test_tasks_that_the_limits_took_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More came than the history keeps: how many went, and what to set."""
    monkeypatch.setenv("OTEL_TASKHISTORY_MAX_TASKS", "2")
    text = b"".join(
        to_line(spans_document([model(1, None, trace_id=f"{number:032x}")]))
        for number in range(1, 8)
    )
    result = imported(tmp_path, text)
    assert result.exit_code == 0, result.output
    assert "5 tasks past the limits" in result.output


def test_an_archive_is_compared_with_the_files_before_it(tmp_path: Path) -> None:
    """They are in the history when it is looked at: the same is known, another one is refused."""
    here = tmp_path / "here"
    with recording(here) as tasks:
        task_id = one_task(tasks)
    exported = {}
    for name in ("whole.jsonl", "whole.zip"):
        exported[name] = tmp_path / name
        args = ["export", task_id, "-o", str(exported[name]), "--directory", str(here)]
        assert CliRunner().invoke(cli, args).exit_code == 0
    lines, archive = (exported[name].read_bytes() for name in ("whole.jsonl", "whole.zip"))
    result = imported(tmp_path, lines, archive)
    assert result.exit_code == 0, result.output
    assert "1 of them the same before" in result.output
    (tmp_path / "other").mkdir()
    result = imported(tmp_path / "other", lines.replace(b"all done", b"all lost"), archive)
    assert result.exit_code == 1
    assert "--as-new" in result.output
