# SPDX-License-Identifier: Apache-2.0
"""Histories on their way in and out: import, receive, forward, archives, Parquet."""
