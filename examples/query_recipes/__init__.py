# SPDX-License-Identifier: Apache-2.0
"""Small programs and SQL files that answer real questions over a history; see the README."""
