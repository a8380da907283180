# SPDX-License-Identifier: Apache-2.0
"""The same spans for everybody: made from a seed, with nothing but the OpenTelemetry SDK.

Runs in the environments of peers too, so it imports nothing of ours.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Tracer, set_span_in_context

STEPS_PER_TASK: Final = 20

_SYLLABLES: Final = [first + vowel for first in "bdklmnprstvz" for vowel in "aeio"]


class Texts:
    """Texts of words from a vocabulary, a few of them frequent, most rare, as in any language."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        vocabulary = random.Random(0)
        self._words = [
            "".join(vocabulary.choices(_SYLLABLES, k=vocabulary.randint(1, 4))) for _ in range(8000)
        ]
        total = 0.0
        self._weights = [total := total + 1 / rank for rank in range(1, len(self._words) + 1)]

    def text(self, size: int) -> str:
        """A text of so many bytes."""
        words = self._chance.choices(self._words, cum_weights=self._weights, k=size // 4 + 1)
        return " ".join(words)[:size].ljust(size, ".")

    def picture(self, size: int, width: int = 1280, height: int = 800) -> bytes:
        """A PNG of so many bytes that no other one resembles; its header is sound, its pixels are
        noise that nobody decodes.
        """

        def chunk(kind: bytes, data: bytes) -> bytes:
            body = kind + data
            return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

        header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        end = chunk(b"IEND", b"")
        noise = self._chance.randbytes(size - 8 - len(header) - len(end) - 12)
        return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", noise) + end


class Collector(SpanProcessor):
    """Keeps what has ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it."""
        self.spans.append(span)


def collected(make: Any, *arguments: Any) -> list[ReadableSpan]:
    """The spans that ``make(tracer, *arguments)`` ends, in that order."""
    provider = TracerProvider(shutdown_on_exit=False)
    collector = Collector()
    provider.add_span_processor(collector)
    make(provider.get_tracer("bench.agent"), *arguments)
    return collector.spans


# --- many spans of 2 KB (marks 3 and 4) ---

Said = tuple[str, str]
"""What a span says: prompt and answer of a model, or arguments and result of a tool."""


def said(spans: int, seed: int) -> list[list[Said]]:
    """What the spans of `tasks` say, task by task; to be made before the clock runs."""
    texts = Texts(seed)
    made: list[list[Said]] = []
    while spans > 0:
        inside = min(spans, 2 * STEPS_PER_TASK + 1) - 1  # the root says nothing
        spans -= inside + 1
        task: list[Said] = []
        for index in range(inside):
            if index % 2 == 0:
                task.append((_message("user", texts.text(1300)), texts.text(500)))
            else:
                task.append((texts.text(150), texts.text(1700)))
        made.append(task)
    return made


def tasks(tracer: Tracer, made: list[list[Said]]) -> None:
    """Tasks of an agent, each a root with model calls and tool calls in turn. All but the root have
    2 KB of text that is in no other span.
    """
    for task in made:
        root = tracer.start_span(
            "invoke_agent desk",
            Context(),
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "desk",
                "gen_ai.conversation.id": "talk",
            },
        )
        inside = set_span_in_context(root, Context())
        for index, (first, second) in enumerate(task):
            if index % 2 == 0:
                chat(tracer, inside, first, second, f"c{index}")
            else:
                tool(tracer, inside, f"c{index - 1}", first, second)
        root.end()


def chat(tracer: Tracer, inside: Context, prompt: str, answer: str, call_id: str) -> None:
    """A model call: `prompt` are messages as JSON without their brackets."""
    part = {"type": "tool_call", "id": call_id, "name": "open", "arguments": {"page": 1}}
    parts = [{"type": "text", "content": answer}, part]
    answered = {"role": "assistant", "parts": parts, "finish_reason": "tool_call"}
    tracer.start_span(
        "chat large",
        inside,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "example",
            "gen_ai.request.model": "large",
            "gen_ai.response.model": "large-1",
            "gen_ai.input.messages": f"[{prompt}]",
            "gen_ai.output.messages": json.dumps([answered], ensure_ascii=False),
            "gen_ai.usage.input_tokens": len(prompt) // 4,
            "gen_ai.usage.output_tokens": len(answer) // 4,
        },
    ).end()


def tool(tracer: Tracer, inside: Context, call_id: str, arguments: str, result: str) -> None:
    """A tool call."""
    tracer.start_span(
        "execute_tool open",
        inside,
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "open",
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": json.dumps({"page": arguments}, ensure_ascii=False),
            "gen_ai.tool.call.result": result,
        },
    ).end()


# --- a conversation that is sent again with every step (marks 2 and 7) ---


class Conversation:
    """A task whose prompt grows with every step, and is sent as a whole each time.

    Args:
        seed: of the texts.
        asked: bytes of text that a step adds before it asks.
        answered: bytes of text of its answer.
        picture: bytes of a picture that comes with each step; None for none.
        pictures_sent: of the pictures only so many are sent, the last ones.
    """

    def __init__(
        self,
        seed: int,
        *,
        asked: int = 1600,
        answered: int = 800,
        picture: int | None = None,
        pictures_sent: int = 3,
    ) -> None:
        self._texts = Texts(seed)
        self._asked, self._answered = asked, answered
        self._picture, self._sent = picture, pictures_sent
        self._messages = [_message("system", self._texts.text(1000))]
        self._shown: list[tuple[int, str]] = []
        self.unique_text = 1000
        """Bytes of text that were ever in a message, each counted once."""
        self.unique_pictures = 0
        """Likewise bytes of pictures, as files."""

    def step(self) -> tuple[str, str]:
        """(prompt: messages as JSON without the brackets, the answer) of the next step."""
        asked, answer = self.texts()
        if self._picture is None:
            self._messages.append(_message("user", asked))
        else:
            picture = self._texts.picture(self._picture)
            self.unique_pictures += len(picture)
            self._messages.append(_message("user", asked, base64.b64encode(picture).decode()))
            self._shown.append((len(self._messages) - 1, _message("user", asked)))
            if len(self._shown) > self._sent:
                position, without = self._shown.pop(0)
                self._messages[position] = without
        prompt = ", ".join(self._messages)
        self._messages.append(_message("assistant", answer))
        return prompt, answer

    def texts(self) -> tuple[str, str]:
        """(what is asked, the answer) of the next step."""
        self.unique_text += self._asked + self._answered
        return self._texts.text(self._asked), self._texts.text(self._answered)


def conversation(tracer: Tracer, steps: int, talk: Conversation) -> Iterator[None]:
    """A task with a model call for each step; yields after each, and after the task's end."""
    root = tracer.start_span(
        "invoke_agent desk",
        Context(),
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"},
    )
    inside = set_span_in_context(root, Context())
    for index in range(steps):
        prompt, answer = talk.step()
        chat(tracer, inside, prompt, answer, f"c{index}")
        yield
    root.end()
    yield


def _message(role: str, text: str, picture: str | None = None) -> str:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}]
    if picture is not None:
        blob = {"type": "blob", "mime_type": "image/png", "modality": "image", "content": picture}
        parts.append(blob)
    return json.dumps({"role": role, "parts": parts}, ensure_ascii=False)


def batches(spans: Sequence[ReadableSpan], size: int) -> Iterator[Sequence[ReadableSpan]]:
    """Spans in groups, as a BatchSpanProcessor hands them over."""
    for start in range(0, len(spans), size):
        yield spans[start : start + size]
