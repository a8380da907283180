# SPDX-License-Identifier: Apache-2.0
"""What leaves this machine, and what is masked before anything is written.

* `policies`: what of a span leaves (`Policy`, `policy_named`); `allowed` is the list of what
  ``ids_only`` lets pass, `shapes` how such values may look.
* `scrubber`: masks secrets; `secret_names`, `patterns`, `assignments`, `encoded` and `json_text`
  say what one is and where it may stand.
* `exporter`: `RedactingExporter`, any exporter of spans behind a policy; `otlp`: OTLP so wrapped.
* `neighbours`: the warning about exporters that get everything.

Policies and scrubbing know records of spans only; they need no OpenTelemetry SDK.
"""

from __future__ import annotations

from otel_taskhistory.redaction.policies import NAMES, Policy, PolicyName, policy_named
from otel_taskhistory.redaction.scrubber import MASK, Scrubber, scrubber_of

__all__ = ["MASK", "NAMES", "Policy", "PolicyName", "Scrubber", "policy_named", "scrubber_of"]
