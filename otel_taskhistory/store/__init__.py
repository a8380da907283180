# SPDX-License-Identifier: Apache-2.0
"""SQLite and files; knows nothing of OpenTelemetry."""
