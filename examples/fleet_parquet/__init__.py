# SPDX-License-Identifier: Apache-2.0
"""Many Host Agents, each with a history of its own, asked one question together."""
