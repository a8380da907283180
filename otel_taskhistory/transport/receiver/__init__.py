# SPDX-License-Identifier: Apache-2.0
"""An OTLP/HTTP endpoint for agents in any language: `server` has the door, `intake` the way in."""
