# SPDX-License-Identifier: Apache-2.0
"""The version of this library, said once; the build and everything else read it from here."""

from __future__ import annotations

__version__ = "0.1.0"
