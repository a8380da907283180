# SPDX-License-Identifier: Apache-2.0
"""A model that needs no key: rules that decide from the conversation alone, as a model does.

They keep nothing between two calls. What they know of the page is what the last tool returned;
every name, price and code in an answer is read from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.host_agent.model import Message, Reply
from examples.host_agent.policy import rough_tokens


@dataclass(frozen=True, slots=True)
class Page:
    """What a tool returned: the page as it is now."""

    path: str
    title: str
    text: str
    elements: list[dict[str, Any]]

    def number(self, name: str) -> int:
        """The number of the element with this name."""
        return next(e["number"] for e in self.elements if e["name"].casefold() == name.casefold())

    def value(self, name: str) -> str:
        """What stands in a field."""
        return next(str(e["value"] or "") for e in self.elements if e["name"] == name)

    def has(self, name: str) -> bool:
        """Whether there is an element with this name."""
        return any(e["name"].casefold() == name.casefold() for e in self.elements)


@dataclass(frozen=True, slots=True)
class Seen:
    """The conversation so far, as far as the rules look at it."""

    goal: str
    page: Page
    before: list[Page]
    """Pages of earlier steps, the oldest first."""
    failures: list[str]


Call = tuple[str, dict[str, Any]]
Decision = str | Call
"""An answer, or one call of a tool."""


class RuleModel:
    """`Model` of the example's goals: see `SKILLS`."""

    name = "browser-rules"

    def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the next decision as a chat completion; its token counts are rough."""
        message = _message(decide(_seen(messages)), len(messages))
        read = [m for m in messages if isinstance(m["content"], str)]
        used, made = rough_tokens([*read, *tools]), rough_tokens([message])
        return {
            "object": "chat.completion",
            "model": self.name,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                }
            ],
            "usage": {"prompt_tokens": used, "completion_tokens": made},
        }


def decide(seen: Seen) -> Decision:
    """The next decision, by the first skill whose pattern the goal matches."""
    if len(seen.failures) > 1:
        return ("give_up", {"reason": f"tried twice: {seen.failures[-1]}"})
    for pattern, skill in SKILLS:
        if match := re.search(pattern, seen.goal):
            return skill(match, seen)
    return ("give_up", {"reason": "I know no rule for this goal"})


def book(goal: re.Match[str], seen: Seen) -> Decision:
    """Find the restaurant, fill in the form field by field, send it, read the code."""
    page = seen.page
    if found := re.search(r"booking code is (\w+)", page.text):
        return f"Booked, code {found[1]}."
    if page.has("Book"):
        for field, wanted in (("Name", goal["name"]), ("Guests", goal["guests"])):
            if page.value(field) != wanted:
                return ("fill", {"element": page.number(field), "text": wanted})
        # A list has the text of all its options for a name, so it is found by its label.
        if page.value("Day") != goal["day"]:
            return ("choose", {"element": page.number("Day"), "option": goal["day"]})
        return ("click", {"element": page.number("Book")})
    wanted = goal["place"] if page.has(goal["place"]) else "Tables"
    return ("click", {"element": page.number(wanted)})


def cheapest(goal: re.Match[str], seen: Seen) -> Decision:
    """Read all pages of the catalogue, then look at the lamps, the cheapest first."""
    prices: dict[str, int] = {}
    ships: dict[str, str] = {}
    pages = [*seen.before, seen.page]
    for page in pages:
        prices |= {name: int(price) for name, price in re.findall(r"(.+)\t€ (\d+)", page.text)}
        if said := re.search(r"Ships (.+)\.", page.text):
            ships[page.title] = said[1]
    if not prices:
        return ("click", {"element": seen.page.number("Lamps")})
    if not any(page.title == "Lamps" and not page.has("Next page") for page in pages):
        return ("click", {"element": seen.page.number("Next page")})
    for name in sorted(prices, key=lambda lamp: prices[lamp]):
        if name not in ships:
            if seen.page.has(name):
                return ("click", {"element": seen.page.number(name)})
            listed = next(page for page in pages if page.has(name))
            return ("open", {"path": listed.path})
        if "week" not in ships[name]:
            return f"{name}, € {prices[name]}; it ships {ships[name]}."
    return ("give_up", {"reason": f"none of {len(prices)} lamps ships this week"})


def write(goal: re.Match[str], seen: Seen) -> Decision:
    """Write a message; what the form asks for only after it was sent is filled in then."""
    page = seen.page
    if found := re.search(r"message has the number (\w+)", page.text):
        return f"Sent, number {found[1]}."
    if not page.has("Send"):
        return ("click", {"element": page.number("Support")})
    if page.value("Message") != goal["text"]:
        return ("fill", {"element": page.number("Message"), "text": goal["text"]})
    if "fill in a subject" in page.text and not page.value("Subject"):
        subject = goal["text"].split(",")[0]
        return ("fill", {"element": page.number("Subject"), "text": subject})
    return ("click", {"element": page.number("Send")})


def cancel(goal: re.Match[str], seen: Seen) -> Decision:
    """Open the booking and press its button."""
    if seen.page.path != f"/bookings/{goal['code']}":
        return ("open", {"path": f"/bookings/{goal['code']}"})
    if seen.page.has("Cancel booking"):
        return ("click", {"element": seen.page.number("Cancel booking")})
    return ("give_up", {"reason": f"{seen.page.title}: there is no button to cancel it"})


SKILLS: tuple[tuple[str, Callable[[re.Match[str], Seen], Decision]], ...] = (
    (r"table for (?P<guests>\d+) at (?P<place>[\w ]+) on (?P<day>\w+) for (?P<name>.+)", book),
    (r"cheapest lamp that ships this week", cheapest),
    (r"[Ww]rite to support: (?P<text>[^\n]+)", write),
    (r"[Cc]ancel booking (?P<code>\w+)", cancel),
)


def _seen(messages: Sequence[Message]) -> Seen:
    """What the conversation says of goal, pages and failures."""
    begin = next(str(m["content"]) for m in messages if m["role"] == "user")
    goal, _, first = begin.partition("\n\nThe page:\n")
    pages, failures = [json.loads(first)], []
    for message in messages:
        if message["role"] == "tool":
            value = json.loads(message["content"])
            if "error" in value:
                failures.append(value["error"])
            pages.append(value.get("page", value))
    *before, page = (Page(p["path"], p["title"], p["text"], p["elements"]) for p in pages)
    return Seen(goal, page, before, failures)


def _message(decision: Decision, length: int) -> Message:
    if isinstance(decision, str):
        return {"role": "assistant", "content": decision}
    name, arguments = decision
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{length}", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}
