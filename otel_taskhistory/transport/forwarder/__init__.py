# SPDX-License-Identifier: Apache-2.0
"""Store and forward: what a history has committed goes to an OTLP/HTTP endpoint, at least once.

The way of a span: `outbound` reads it from the ledger and through the policy, `sending` decides
what is posted when and what is done with it after an answer, `posting` does one request, and
`forwarder` repeats that until nothing is left, or for ever.
"""

from __future__ import annotations
