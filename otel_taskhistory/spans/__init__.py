# SPDX-License-Identifier: Apache-2.0
"""One span, wherever it comes from, as plain facts."""
