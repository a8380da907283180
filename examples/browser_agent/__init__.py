# SPDX-License-Identifier: Apache-2.0
"""An agent that works in a real browser, recorded with a picture of every step.

``python -m examples.browser_agent`` runs it; see the README beside this file.
"""
