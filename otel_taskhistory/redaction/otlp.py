# SPDX-License-Identifier: Apache-2.0
"""``OTEL_TRACES_EXPORTER=taskhistory,taskhistory_otlp``: OTLP without contents, with no code.

The exporter that ``otlp`` would be, behind a `RedactingExporter`. Its settings are those of the
OpenTelemetry specification (``OTEL_EXPORTER_OTLP_*``); the policy is ``ids_only`` unless
``OTEL_TASKHISTORY_REMOTE_POLICY`` names another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.trace.export import SpanExporter

from otel_taskhistory.errors import SettingsError, TaskHistoryError
from otel_taskhistory.redaction.exporter import RedactingExporter
from otel_taskhistory.redaction.policies import NAMES, PolicyName
from otel_taskhistory.settings import ENV_REMOTE_POLICY
from otel_taskhistory.units import bad_value

_ENV_PROTOCOL: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class TaskHistoryOtlpExporter(RedactingExporter):
    """The OTLP exporter behind a policy, made of environment variables.

    Args:
        arguments: of the OTLP exporter, as auto-configuration may give them.

    Raises:
        TaskHistoryError: there is no exporter for OTLP, or a variable has a value that cannot be
            used.
    """

    def __init__(self, **arguments: Any) -> None:
        policy = policy_of_environment(os.environ)
        super().__init__(_exporter(os.environ, arguments), policy)


def policy_of_environment(environ: Mapping[str, str]) -> PolicyName:
    """The policy that ``OTEL_TASKHISTORY_REMOTE_POLICY`` names; ``ids_only`` when it is not set.

    Raises:
        SettingsError: it names none.
    """
    name = environ.get(ENV_REMOTE_POLICY, "").strip()
    if not name:
        return "ids_only"
    if name.lower() not in NAMES:
        raise bad_value(ENV_REMOTE_POLICY, name, "is no policy", f"use {', '.join(NAMES)}")
    return name.lower()  # type: ignore[return-value]


def _exporter(environ: Mapping[str, str], arguments: Mapping[str, Any]) -> SpanExporter:
    protocol = next((said for name in _ENV_PROTOCOL if (said := environ.get(name, "").strip())), "")
    match protocol:
        case "" | "http/protobuf":
            try:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            except ImportError as error:
                raise TaskHistoryError(
                    f"taskhistory_otlp needs the OTLP exporter ({error}):"
                    " pip install 'otel-taskhistory[otlp]'"
                ) from None
            return OTLPSpanExporter(**arguments)
        case "grpc":
            try:
                from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found]
                    OTLPSpanExporter as GrpcSpanExporter,
                )
            except ImportError as error:
                raise TaskHistoryError(
                    f"OTLP over gRPC needs its exporter ({error}):"
                    " pip install opentelemetry-exporter-otlp-proto-grpc, or set"
                    " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
                ) from None
            exporter: SpanExporter = GrpcSpanExporter(**arguments)
            return exporter
        case _:
            raise SettingsError(
                f"{_ENV_PROTOCOL[1]}={protocol[:40]!r} is no protocol that is known here;"
                " use http/protobuf or grpc"
            )
