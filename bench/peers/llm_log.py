# SPDX-License-Identifier: Apache-2.0
"""`llm`'s log database, which keeps messages by their hash."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import llm
import sqlite_utils
import workload
from llm.logs import LogStore
from serve import serve


def stored(steps: int, talk: dict[str, Any]) -> dict[str, Any]:
    """Bytes of a new database with the messages of a conversation in it."""
    database = sqlite_utils.Database("llm.db")
    store = LogStore(database)
    conversation = workload.Conversation(**talk)
    messages: list[Any] = []
    tip = None
    for _ in range(steps):
        asked, answer = conversation.texts()
        messages += [llm.user(asked)]
        tip = store.ensure_chain(messages)
        messages += [llm.assistant(answer)]
    store.ensure_chain(messages)
    found = len(store.load_chain(tip))
    database.close()
    return {"bytes": os.stat("llm.db").st_size, "rows": found}


if __name__ == "__main__":
    serve({"stored": stored}, {"llm": version("llm")})
