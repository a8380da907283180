# SPDX-License-Identifier: Apache-2.0
"""SQL that puts the pieces of a template together; see `otel_taskhistory.store.migrations`."""

from __future__ import annotations


def filled(text: str, template: str) -> str:
    """SQL for `text` of a ledger column or content row whose `template` flag is set.

    The pieces of a template come out of json_each in order, and SQLite keeps the order of a
    subquery that feeds an aggregate like group_concat.
    """
    node = "json_extract(piece.value, '$[0]')"
    separator = "json_extract(piece.value, '$[2]')"
    return f"""CASE WHEN {template} THEN (
        SELECT group_concat(CASE piece.type
            WHEN 'text' THEN piece.value
            WHEN 'integer' THEN (
                SELECT iif(piece.value > 0, json_quote(leaf.text), leaf.text)
                FROM _contents AS leaf WHERE leaf.id = abs(piece.value))
            ELSE json_quote(
                json_extract(piece.value, '$[1]')
                || {messages(node, separator)}
                || json_extract(piece.value, '$[3]'))
            END, '')
        FROM json_each({text}) AS piece
    ) ELSE {text} END"""


def _message(row: str) -> str:
    """SQL for the text of the content row `row`, whose template has no lists in it."""
    return f"""CASE WHEN {row}.template THEN (
            SELECT group_concat(CASE part.type WHEN 'text' THEN part.value ELSE (
                SELECT iif(part.value > 0, json_quote(leaf.text), leaf.text)
                FROM _contents AS leaf WHERE leaf.id = abs(part.value)) END, '')
            FROM json_each({row}.text) AS part
        ) ELSE {row}.text END"""


def messages(node: str, separator: str) -> str:
    """SQL for the messages from the first to `node`, joined by `separator`."""
    return f"""(
        WITH RECURSIVE chain (id, parent, content, length) AS (
            SELECT id, parent, content, length FROM _nodes WHERE id = {node}
            UNION ALL
            SELECT before.id, before.parent, before.content, before.length
            FROM chain JOIN _nodes AS before ON before.id = chain.parent
        )
        SELECT group_concat(message, {separator}) FROM (
            SELECT {_message("entry")} AS message
            FROM chain JOIN _contents AS entry ON entry.id = chain.content
            ORDER BY chain.length
        ))"""
