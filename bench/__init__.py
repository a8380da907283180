# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ``python -m bench``, see docs/benchmarks.md."""
