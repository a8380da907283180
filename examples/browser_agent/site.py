# SPDX-License-Identifier: Apache-2.0
"""The web site that the agent works on: a few real pages with forms, served on loopback.

::

    GET  /                    where to go from here
    GET  /tables              the restaurants; a form for each at /tables/NAME
    POST /tables/NAME         a booking, which gets a code
    GET  /lamps?page=N        a catalogue; a lamp's own page says when it ships
    GET  /support             a form; POST refuses a message without a subject
    GET  /bookings/CODE       a booking with a button to cancel it

The last page has a genuine defect, of a kind that is common: a notice lies over the button until
a script takes it away, and that script is not there.
"""

from __future__ import annotations

import html
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

RESTAURANTS: Final = {"luna": "Trattoria Luna", "ocean": "Ocean Grill", "green": "The Green Bowl"}
LAMPS: Final = (
    ("arc", "Arc floor lamp", 129, "in 3 weeks"),
    ("bell", "Bell table lamp", 49, "in 6 weeks"),
    ("cone", "Cone desk lamp", 59, "tomorrow"),
    ("dome", "Dome ceiling lamp", 89, "tomorrow"),
    ("edge", "Edge wall lamp", 54, "in 2 days"),
    ("fern", "Fern night light", 29, "in 5 weeks"),
)
"""(name in the address, title, price in euro, when it ships)."""
ON_A_PAGE: Final = 3
MAX_BODY: Final = 10_000

_STYLE: Final = """
body { font: 17px/1.5 sans-serif; margin: 0; color: #1d2733; background: #f4f6f8 }
header { background: #21496b; color: #fff; padding: 14px 32px; font-size: 21px }
header a { color: #fff; margin-left: 24px; font-size: 16px }
main { max-width: 720px; margin: 28px auto; background: #fff; padding: 24px 32px;
  border-radius: 8px; box-shadow: 0 1px 4px #0003 }
label { display: block; margin: 12px 0 4px }
input, select, textarea { font: inherit; padding: 6px 8px; width: 320px; box-sizing: border-box }
button { font: inherit; margin-top: 18px; padding: 8px 22px; background: #21496b; color: #fff;
  border: 0; border-radius: 5px }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: 8px;
  border-bottom: 1px solid #dde3e9 }
.error { background: #fde8e6; color: #8d1f16; padding: 10px 14px; border-radius: 5px }
.notice { position: fixed; inset: 0; background: #0d1b29d9; color: #fff; display: flex;
  align-items: center; justify-content: center; font-size: 24px }
"""


@dataclass(slots=True)
class Desk:
    """What the site has taken down so far."""

    bookings: dict[str, str] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)


class Site:
    """The site on a free port of 127.0.0.1 while a ``with`` block runs."""

    def __init__(self) -> None:
        self.desk = Desk()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.desk))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(0.05,),  # seconds between looks at whether to stop
            name="site",
            daemon=True,
        )

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(desk: Desk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Show a page."""
            self._send(*_page(desk, self._path(), self._query(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            """Take a form."""
            size = min(int(self.headers.get("Content-Length") or 0), MAX_BODY)
            sent = self._query(self.rfile.read(size).decode("utf-8", "replace"))
            self._send(*_taken(desk, self._path(), sent))

        def _path(self) -> list[str]:
            parts = urlsplit(self.path).path.split("/")
            return [unquote(part) for part in parts if part]

        def _query(self, text: str) -> dict[str, str]:
            return {key: values[0].strip() for key, values in parse_qs(text).items()}

        def _send(self, status: int, title: str, body: str) -> None:
            page = (
                f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
                f"<style>{_STYLE}</style><header>Corner Street <a href=/tables>Tables</a>"
                "<a href=/lamps>Lamps</a><a href=/support>Support</a></header>"
                f"<main><h1>{title}</h1>{body}</main>"
            ).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """The agent's own output is enough."""

    return Handler


def _page(desk: Desk, path: list[str], query: dict[str, str]) -> tuple[int, str, str]:
    """(status, title, body) of a page."""
    match path:
        case []:
            return 200, "Corner Street", "<p>Tables to book, lamps to buy, people who help.</p>"
        case ["tables"]:
            links = [f"<li><a href=/tables/{key}>{name}</a>" for key, name in RESTAURANTS.items()]
            return 200, "Book a table", f"<ul>{''.join(links)}</ul>"
        case ["tables", key] if key in RESTAURANTS:
            return 200, RESTAURANTS[key], _booking_form()
        case ["lamps"]:
            return 200, "Lamps", _catalogue(query.get("page", "1"))
        case ["lamps", key] if lamp := next((one for one in LAMPS if one[0] == key), None):
            return 200, lamp[1], f"<p>Price: € {lamp[2]}</p><p>Ships {lamp[3]}.</p>"
        case ["support"]:
            return 200, "Write to us", _message_form("", "")
        case ["bookings", code] if code in desk.bookings:
            return 200, f"Booking {code}", _booking(desk.bookings[code])
    return 404, "Not found", "<p>There is no such page.</p>"


def _taken(desk: Desk, path: list[str], sent: dict[str, str]) -> tuple[int, str, str]:
    """(status, title, body) of the answer to a form."""
    match path:
        case ["tables", key] if key in RESTAURANTS:
            code = f"T{len(desk.bookings) + 101}"
            said = f"{RESTAURANTS[key]}, {sent.get('day')}, {sent.get('guests')} guests"
            desk.bookings[code] = f"{said}, for {sent.get('name')}"
            return 200, "Booked", f"<p>Your booking code is {code}.</p>{_said(desk, code)}"
        case ["support"]:
            if not sent.get("subject"):
                error = "<p class=error>Please fill in a subject.</p>"
                return 422, "Write to us", error + _message_form("", sent.get("message", ""))
            desk.messages.append(sent)
            number = f"M{len(desk.messages) + 500}"
            return 200, "Thank you", f"<p>Your message has the number {number}.</p>"
    return 404, "Not found", "<p>There is no such form.</p>"


def _said(desk: Desk, code: str) -> str:
    return f"<p>{html.escape(desk.bookings[code])}.</p><a href=/bookings/{code}>Your booking</a>"


def _booking_form() -> str:
    days = "".join(f"<option>{day}</option>" for day in ("Thursday", "Friday", "Saturday"))
    return (
        "<form method=post><label for=name>Name</label><input id=name name=name required>"
        "<label for=guests>Guests</label><input id=guests name=guests type=number required>"
        f"<label for=day>Day</label><select id=day name=day>{days}</select><br>"
        "<button>Book</button></form>"
    )


def _catalogue(page: str) -> str:
    number = int(page) if page.isdecimal() else 1
    shown = LAMPS[(number - 1) * ON_A_PAGE : number * ON_A_PAGE]
    rows = [f"<tr><td><a href=/lamps/{k}>{name}</a><td>€ {price}" for k, name, price, _ in shown]
    further = f"<p><a href='/lamps?page={number + 1}'>Next page</a></p>"
    more = further if number * ON_A_PAGE < len(LAMPS) else ""
    return f"<table><tr><th>Lamp<th>Price{''.join(rows)}</table>{more}"


def _message_form(subject: str, message: str) -> str:
    return (
        "<form method=post><label for=subject>Subject</label>"
        f"<input id=subject name=subject value='{html.escape(subject, quote=True)}'>"
        "<label for=message>Message</label>"
        f"<textarea id=message name=message rows=5>{html.escape(message)}</textarea><br>"
        "<button>Send</button></form>"
    )


def _booking(said: str) -> str:
    return (
        f"<p>{html.escape(said)}.</p><form method=post><button>Cancel booking</button></form>"
        "<div class=notice>We have new terms. Please wait …</div><script src=/terms.js></script>"
    )
