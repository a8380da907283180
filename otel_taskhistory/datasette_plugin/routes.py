# SPDX-License-Identifier: Apache-2.0
"""The addresses below ``/-/taskhistory/``: who may see what, read in threads, failures as pages.

What goes wrong is told in a sentence without SQL or anything recorded; the log has the rest.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

from datasette.utils import tilde_decode
from datasette.utils.asgi import Forbidden, Response

from otel_taskhistory import pages
from otel_taskhistory.datasette_plugin import access, answers
from otel_taskhistory.datasette_plugin.database import HistoryDatabase
from otel_taskhistory.datasette_plugin.histories import (
    ELSEWHERE,
    histories,
    history_called,
    links_of,
)
from otel_taskhistory.datasette_plugin.pictures import HASH
from otel_taskhistory.datasette_plugin.unknown import unknown_task_page
from otel_taskhistory.errors import (
    HistoryNotFound,
    HistoryRefused,
    SettingsError,
    TaskHistoryError,
    TaskNotFound,
)
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.links import Links
from otel_taskhistory.thumbnails import DEFAULT_SIZE, SIZES, placeholder

Reply = Callable[["Asked"], Awaitable[Response]]

_logger = logging.getLogger(__name__)

_LONGEST: Final = 2_000
"""Characters of a parameter; more is no id, cursor, or search that anybody has typed."""


class Asked:
    """A request for one of our addresses, of somebody who may see what is there."""

    def __init__(self, datasette: Any, request: Any, database: HistoryDatabase) -> None:
        self.datasette = datasette
        self.request = request
        self.database = database
        self.served = database.served
        self.links: Links = links_of(datasette, database)

    def part(self, name: str) -> str:
        """A part of the path."""
        return unquote(self.request.url_vars[name])[:_LONGEST]

    def param(self, name: str) -> str | None:
        """A parameter; None when it is not given, or empty."""
        given = self.request.args.get(name)
        return given[:_LONGEST] if given else None

    def params(self) -> dict[str, str]:
        """All of them."""
        return {name: self.request.args.get(name)[:_LONGEST] for name in self.request.args}

    def wants_json(self) -> bool:
        """Whether the address is one of JSON."""
        return bool(self.request.path.endswith(".json"))


# --- pages --------------------------------------------------------------------------------------


async def _task_list(asked: Asked) -> Response:
    params = asked.params()
    return answers.page(
        await asked.served.read(lambda h: pages.task_list_page(h, params, asked.links))
    )


async def _task(asked: Asked) -> Response:
    task_id, step_id = asked.part("task"), asked.param("step")

    def read(history: TaskHistory) -> str | None:
        if history.task(task_id).task_id != task_id:
            return None
        return pages.task_page(history, task_id, asked.links, step_id=step_id)

    html = await asked.served.read(read)
    if html is None:  # the beginning of an id, or latest: one page has one address
        whole = await asked.served.read(lambda h: h.task(task_id).task_id)
        return answers.moved(str(asked.links.task(whole, step_id)))
    return answers.page(html)


async def _steps(asked: Asked) -> Response:
    task_id, cursor = asked.part("task"), asked.param("cursor")
    return answers.page(
        await asked.served.read(lambda h: pages.steps_fragment(h, task_id, cursor, asked.links))
    )


async def _step(asked: Asked) -> Response:
    task_id, step_id, full = asked.part("task"), asked.part("step"), asked.param("full") == "1"
    return answers.page(
        await asked.served.read(
            lambda h: pages.step_fragment(h, task_id, step_id, asked.links, full=full)
        )
    )


async def _film(asked: Asked) -> Response:
    task_id, cursor = asked.part("task"), asked.param("cursor")
    return answers.page(
        await asked.served.read(lambda h: pages.film_fragment(h, task_id, cursor, asked.links))
    )


async def _axis(asked: Asked) -> Response:
    task_id = asked.part("task")
    return answers.as_json(await asked.served.read(lambda h: pages.axis(h, task_id)))


async def _changes(asked: Asked) -> Response:
    task_id, after = asked.part("task"), asked.param("after")
    return answers.as_json(await asked.served.read(lambda h: pages.changes(h, task_id, after)))


async def _search(asked: Asked) -> Response:
    typed = asked.param("q") or ""
    return answers.page(await asked.served.read(lambda h: pages.search_page(h, typed, asked.links)))


async def _plots(asked: Asked) -> Response:
    return answers.page(await asked.served.read(lambda h: pages.plots_page(h, asked.links)))


# --- files --------------------------------------------------------------------------------------


async def _artifact(asked: Asked) -> Response:
    sha256 = asked.part("sha256")
    if not HASH.fullmatch(sha256):
        return answers.text("A picture is named by the 64 hex digits of its SHA-256.", 404)
    found = await asked.served.read(lambda h: asked.served.pictures.picture(sha256, h))
    if found is None:
        return answers.text("There is no such picture in this history, or no more.", 404)
    return answers.picture(found)


async def _thumbnail(asked: Asked) -> Response:
    sha256, wanted = asked.part("sha256"), asked.param("w")
    if not HASH.fullmatch(sha256):
        return answers.text("A picture is named by the 64 hex digits of its SHA-256.", 404)
    width = int(wanted) if wanted and re.fullmatch("[0-9]{1,4}", wanted) else DEFAULT_SIZE
    if (wanted is not None and str(width) != wanted) or width not in SIZES:
        sizes = ", ".join(map(str, SIZES))
        return answers.text(f"Thumbnails have a width (w) of {sizes}.", 400)
    made = await asked.served.pictures.thumbnail(sha256, width)
    if made is None:  # browsers show it all the same
        return answers.thumbnail(placeholder(width), 404)
    return answers.thumbnail(made)


async def asset(request: Any) -> Response:
    """A file of the pages themselves; there is nothing to be hidden in it."""
    found = answers.asset(unquote(request.url_vars["name"]))
    return found or answers.text("There is no such file.", 404)


# --- the way to all of them ---------------------------------------------------------------------


def _served(reply: Reply, tables: tuple[str, ...] = access.TABLES) -> Callable[..., Any]:
    async def view(datasette: Any, request: Any) -> Response:
        if request.method not in ("GET", "HEAD"):
            return answers.text("A history can only be read.", 405)
        name = request.url_vars.get("history")
        database = _database(datasette, name)
        if database is None:
            return answers.text("There is no task history here.", 404)
        asked = Asked(datasette, request, database)
        try:
            await access.require(datasette, request.actor, database.name, tables)
            return await reply(asked)
        except Forbidden:
            raise
        except Exception as error:
            return await _failed(asked, error)

    return view


def _database(datasette: Any, name: str | None) -> HistoryDatabase | None:
    if name is None:
        return next(iter(histories(datasette)), None)
    return history_called(datasette, tilde_decode(unquote(name)))


async def failed(datasette: Any, request: Any, error: TaskHistoryError) -> Response | None:
    """What is said when one of Datasette's own pages cannot be made of a history.

    Args:
        datasette: the instance.
        request: which page.
        error: what went wrong.

    Returns:
        None when it is no page of a history.
    """
    name = request.url_vars.get("database")
    database = history_called(datasette, tilde_decode(name)) if name else None
    database = database or next(iter(histories(datasette)), None)
    if database is None:
        return None
    try:
        return await _failed(Asked(datasette, request, database), error)
    except Forbidden:
        return None


async def _failed(asked: Asked, error: Exception) -> Response:
    status, title, message = _what(error)
    if status >= 500:
        _logger.error("otel-taskhistory: %s failed", asked.request.path, exc_info=error)
    try:
        if status != 500:  # what is told names places: only to those who may look there
            await access.require(asked.datasette, asked.request.actor, asked.database.name, ())
        by_id = "task" in asked.request.url_vars
        if isinstance(error, TaskNotFound) and by_id and not asked.wants_json():
            task_id = asked.part("task")
            html = await asked.served.read(
                lambda h: unknown_task_page(h, task_id, message, asked.links)
            )
            return answers.page(html, status)
    except TaskHistoryError as failure:  # it goes while we look
        status, title, message = _what(failure)
    if asked.wants_json():
        return answers.as_json({"error": message, "status": status}, status)
    return answers.page(pages.problem_page(title, message, asked.links), status)


def _what(error: Exception) -> tuple[int, str, str]:
    """(HTTP status, title, what may be told) of what went wrong."""
    if isinstance(error, TaskNotFound):
        return 404, "No such task", _sentence(str(error))
    if isinstance(error, SettingsError):
        return 400, "This cannot be answered", _sentence(str(error))
    if isinstance(error, HistoryNotFound):
        return 404, "No history", _sentence(str(error))
    if isinstance(error, HistoryRefused):
        return 503, "This history cannot be read", _sentence(str(error))
    if isinstance(error, TaskHistoryError):
        return 503, "The history cannot be read now", _SEE_THE_LOG
    return 500, "Something went wrong", "The log of this server says what."


def _sentence(message: str) -> str:
    is_word = message.partition(" ")[0].isalpha()  # and no path, or name of a setting
    return f"{message[:1].upper() if is_word else message[:1]}{message[1:]}."


_SEE_THE_LOG: Final = (
    "It may be damaged, or out of reach for a moment. The log of this server says what was wrong;"
    " otel-taskhistory doctor looks for the reason."
)
_TASK: Final = r"tasks/(?P<task>[^/]+)"


def our_routes() -> list[tuple[str, Callable[..., Any]]]:
    """(pattern, view) of all of them."""
    ours: list[tuple[str, Callable[..., Any]]] = [
        (r"", _served(_task_list)),
        (_TASK, _served(_task)),
        (rf"{_TASK}/steps", _served(_steps)),
        (rf"{_TASK}/steps/(?P<step>[^/]+)", _served(_step)),
        (rf"{_TASK}/axis\.json", _served(_axis)),
        (rf"{_TASK}/film", _served(_film)),
        (rf"{_TASK}/changes\.json", _served(_changes)),
        (r"search", _served(_search)),
        (r"plots", _served(_plots)),
        (r"artifacts/(?P<sha256>[^/]+)", _served(_artifact, access.PICTURES)),
        (r"thumbnails/(?P<sha256>[^/]+)", _served(_thumbnail, access.PICTURES)),
        (r"assets/(?P<name>[^/]+)", asset),
    ]
    other = rf"/{re.escape(ELSEWHERE)}(?P<history>[^/]+)"
    return [
        (rf"^{before}/-/taskhistory/{pattern}$", view)
        for before in ("", other)
        for pattern, view in ours
    ] + [(r"^/-/taskhistory$", _to_the_list)]


async def _to_the_list(datasette: Any) -> Response:
    return answers.moved(str(datasette.urls.path("/-/taskhistory/")))
