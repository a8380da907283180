# SPDX-License-Identifier: Apache-2.0
"""What is asked of the whole fleet, in SQL; `opened` makes the tables that it names."""

from __future__ import annotations

from pathlib import Path

import duckdb

QUESTIONS = {
    "How often does each agent fail?": """\
SELECT agent, count(*) AS total,
    round(100.0 * count(*) FILTER (status = 'failed') / count(*), 1) AS failed_percent
FROM tasks GROUP BY agent ORDER BY failed_percent DESC, agent
""",
    "Which tools are slowest?": """\
SELECT name, count(*) AS calls, round(quantile_cont(duration_ms, 0.5)) AS median_ms,
    round(quantile_cont(duration_ms, 0.95)) AS p95_ms, count(*) FILTER (status = 'failed') AS failed
FROM tool_calls GROUP BY name ORDER BY p95_ms DESC
""",
    "How many tokens a day, by model?": """\
SELECT day, model, count(*) AS calls, sum(input_tokens) AS input, sum(output_tokens) AS output
FROM model_calls GROUP BY day, model ORDER BY day, model
""",
    "Which machines fail more than others of the same agent?": """\
SELECT agent, host_name, count(*) FILTER (status = 'failed') AS failed, count(*) AS total
FROM tasks WHERE resource->>'$."deployment.environment.name"' = 'production'
GROUP BY agent, host_name HAVING failed > 0 ORDER BY failed / total DESC, host_name LIMIT 5
""",
    "What had failed tasks done last?": """\
SELECT tasks.agent, steps.tool_name, steps.error, count(*) AS times
FROM tasks JOIN steps USING (task_id, history_id)
WHERE tasks.status = 'failed' AND steps.step_index = tasks.step_count
GROUP BY ALL ORDER BY times DESC, tasks.agent LIMIT 5
""",
}


def opened(folder: Path) -> duckdb.DuckDBPyConnection:
    """A connection with the tables of a folder that `export --format parquet` has written."""
    connection = duckdb.connect()
    for table in ("tasks", "steps", "model_calls", "tool_calls"):
        files = str(folder / table / "*" / "*" / "*.parquet").replace("'", "''")
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}',"
            " hive_partitioning = true, hive_types = {'day': DATE, 'agent': VARCHAR})"
        )
    return connection
