# SPDX-License-Identifier: Apache-2.0
"""The agent's side: handles for what is running, and what leaves them."""
