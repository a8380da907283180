# SPDX-License-Identifier: Apache-2.0
"""Questions that people ask of a history, as plain SQL over its public tables and views.

Each also works as it stands in ``sqlite-utils query`` or the ``sqlite3`` shell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Query:
    """A question and its SQL."""

    name: str
    title: str
    description: str
    sql: str


QUERIES: Final = (
    Query(
        "failed-steps",
        "Failed steps",
        "Steps that failed or were interrupted, the latest first.",
        """
SELECT task_id, step_id, step_index, name, agent, status, error_type, error, tool_name,
    started_at, duration_ms, screenshot
FROM steps
WHERE status IN ('failed', 'interrupted')
ORDER BY started_at DESC
""",
    ),
    Query(
        "slowest-tools",
        "Slowest tools",
        "How long the calls of each tool took, and how many failed.",
        """
SELECT name, count(*) AS calls, sum(status = 'failed') AS failed,
    round(avg(duration_ms), 1) AS average_ms, max(duration_ms) AS longest_ms,
    round(sum(duration_ms), 1) AS total_ms
FROM tool_calls
GROUP BY name
ORDER BY total_ms DESC
""",
    ),
    Query(
        "tokens-by-day-and-model",
        "Tokens by day and model",
        "What was sent to each model and came from it on each day (UTC).",
        """
SELECT substr(started_at, 1, 10) AS day, model, count(*) AS model_calls,
    sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
    sum(cached_tokens) AS cached_tokens, sum(reasoning_tokens) AS reasoning_tokens,
    sum(cost) AS cost
FROM model_calls
GROUP BY day, model
ORDER BY day DESC, input_tokens DESC
""",
    ),
    Query(
        "retries",
        "Retries",
        "The same tool with the same arguments more than once in a task, most often first.",
        """
SELECT task_id, name, arguments, count(*) AS calls, sum(status = 'failed') AS failed,
    min(started_at) AS first_at, max(started_at) AS last_at
FROM tool_calls
GROUP BY task_id, name, arguments
HAVING count(*) > 1
ORDER BY calls DESC, last_at DESC
""",
    ),
    Query(
        "resumed-tasks",
        "Resumed tasks",
        "Tasks that were taken up again after their process had died.",
        """
SELECT task_id, goal, agent, status, attempt, step_count, started_at, ended_at
FROM tasks
WHERE attempt > 1
ORDER BY started_at DESC
""",
    ),
    Query(
        "steps-without-a-decision",
        "Steps without a decision",
        "Steps that ended and for which no answer of a model is recorded.",
        """
SELECT task_id, step_id, step_index, name, agent, status, model, tool_name, error, started_at
FROM steps
WHERE decision IS NULL AND status <> 'running'
ORDER BY started_at DESC
""",
    ),
)
"""All of them, in the order in which they are listed."""
