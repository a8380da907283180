# SPDX-License-Identifier: Apache-2.0
"""The pages of a history: documents, parts of them, and JSON; whoever serves them adds routes.

Everything recorded is hostile: it is text, never markup, and its invisible characters are shown.
The pages need no script; with it they load what is seen, draw the axis and follow a running task.
"""

from __future__ import annotations

from otel_taskhistory.pages.assets import ASSETS
from otel_taskhistory.pages.axis import axis
from otel_taskhistory.pages.film import film_fragment
from otel_taskhistory.pages.html import Url
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.live import changes
from otel_taskhistory.pages.plots import plots_page
from otel_taskhistory.pages.search import search_page
from otel_taskhistory.pages.shell import problem_page
from otel_taskhistory.pages.step_list import steps_fragment
from otel_taskhistory.pages.step_pane import step_fragment
from otel_taskhistory.pages.task_list import task_list_page
from otel_taskhistory.pages.task_page import task_page

__all__ = [
    "ASSETS",
    "Links",
    "Url",
    "axis",
    "changes",
    "film_fragment",
    "plots_page",
    "problem_page",
    "search_page",
    "step_fragment",
    "steps_fragment",
    "task_list_page",
    "task_page",
]
