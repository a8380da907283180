# SPDX-License-Identifier: Apache-2.0
"""Queries behind the pages: what is shown first, in a few index look-ups, whatever its size.

No value is read further than it is shown: long ones are read from their beginning only (SQLite's
incremental access, so that not even their pages are fetched), and a text that was cut says so at
its end: see `otel_taskhistory.store.overview.texts`. Prompts are read for one step at a time.
"""
