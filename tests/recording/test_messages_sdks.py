# SPDX-License-Identifier: Apache-2.0
"""Objects of the model SDKs are recorded as those SDKs send them; the wire is the judge.

Each client talks to a transport in the test, which keeps the bodies of its requests. The SDKs take
seconds to import, so a test imports the one it needs: pytest loads this module in every worker.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.recording.messages import convert_decision, convert_prompt, restore_prompt

REPLIES = Path(__file__).parent / "replies"
PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x04\0\0\0\x04\x08\x02\0\0\0&\x93\t)\0\0\0\x10IDATx\x9cc"
    b"8!'G\x0cD\x9cq\x02\xb1b\x10A;Kc\x82\0\0\0\0IEND\xaeB`\x82\xfb\xff\xfe?>"
)
PICTURE = base64.b64encode(PNG).decode("ascii")


class Wire:
    """An HTTP client whose every request is answered with one reply, and kept."""

    def __init__(self, reply: str) -> None:
        self.bodies: list[Any] = []
        self._reply = json.loads((REPLIES / f"{reply}.json").read_text("utf-8"))["reply"]
        # Newer releases of Anthropic's SDK use httpx2, which has the same classes.
        name = "httpx"
        if reply == "anthropic":
            import anthropic

            bases = [base.__module__ for base in anthropic.DefaultHttpxClient.__mro__]
            name = next(base for base in bases if base.startswith("httpx")).partition(".")[0]
        self._http = importlib.import_module(name)
        self.client = self._http.Client(transport=self._http.MockTransport(self._answer))

    def _answer(self, request: Any) -> Any:
        self.bodies.append(json.loads(request.content))
        return self._http.Response(200, json=self._reply)


@pytest.fixture
def wire() -> Iterator[Callable[[str], Wire]]:
    """Make wires; their clients are closed at the end."""
    made: list[Wire] = []

    def make(reply: str) -> Wire:
        made.append(Wire(reply))
        return made[-1]

    yield make
    for each in made:
        each.client.close()


def test_openai_chat(wire: Callable[[str], Wire]) -> None:
    """The message objects of responses, put back into the conversation, read as they are sent."""
    import openai
    from openai.types.chat import ChatCompletionMessageFunctionToolCall

    line = wire("openai_chat")
    client = openai.OpenAI(api_key="none", http_client=line.client)
    url = {"url": f"data:image/png;base64,{PICTURE}", "detail": "low"}
    messages: list[Any] = [
        {"role": "system", "content": "You operate a browser."},
        {"role": "user", "content": ({"type": "image_url", "image_url": url},)},
    ]
    for _ in range(3):
        reply = client.chat.completions.create(model="gpt-4o", messages=messages)
        recorded = convert_prompt(messages)
        assert restore_prompt(recorded.messages) == line.bodies[-1]["messages"]
        assert recorded.reduced == ()
        decision = convert_decision(reply)
        messages.append(reply.choices[0].message)
        again = json.loads(convert_prompt(messages).messages)[-1]
        assert again["parts"] == json.loads(decision.messages)[0]["parts"]
        for call in reply.choices[0].message.tool_calls or ():
            assert isinstance(call, ChatCompletionMessageFunctionToolCall)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "ok"})
    assert decision.tool_calls == 2
    assert decision.usage["cached_tokens"] == 1024
    assert f'"{PICTURE}"' in recorded.messages


def test_openai_responses(wire: Callable[[str], Wire]) -> None:
    """The items of a response, put back into the input, read as they are sent."""
    import openai

    line = wire("openai_responses")
    client = openai.OpenAI(api_key="none", http_client=line.client)
    url = f"data:image/png;base64,{PICTURE}"
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "low"}]}
    ]
    for _ in range(2):
        reply = client.responses.create(model="gpt-5", input=items, instructions="Be brief.")
        recorded = convert_prompt(items, system="Be brief.")
        assert restore_prompt(recorded.messages) == line.bodies[-1]["input"]
        assert recorded.system == '[{"type": "text", "content": "Be brief."}]'
        items += reply.output
        items.append({"type": "function_call_output", "call_id": "call_1", "output": "ok"})
    decision = convert_decision(reply)
    sent_again = json.loads(convert_prompt(reply.output).messages)
    assert [m["parts"] for m in json.loads(decision.messages)] == [m["parts"] for m in sent_again]
    assert (decision.tool_calls, decision.finish_reasons) == (2, ("completed",))
    assert decision.usage["reasoning_tokens"] == 32


def test_anthropic(wire: Callable[[str], Wire]) -> None:
    """The content blocks of a response, put back into the messages, read as they are sent."""
    import anthropic

    line = wire("anthropic")
    client = anthropic.Anthropic(api_key="none", http_client=line.client)
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    tools: list[Any] = [{"name": "click", "input_schema": {"type": "object", "properties": {}}}]
    messages: list[Any] = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    for _ in range(2):
        reply = client.messages.create(
            model="claude", max_tokens=100, messages=messages, tools=tools
        )
        recorded = convert_prompt(messages, tools=tools)
        assert restore_prompt(recorded.messages) == line.bodies[-1]["messages"]
        assert json.loads(recorded.tools or "") == line.bodies[-1]["tools"]
        messages.append({"role": "assistant", "content": reply.content})
        result = {"type": "tool_result", "tool_use_id": "toolu_01A09q90qw90lq917835lq9"}
        content = [{**result, "content": [{"type": "image", "source": source}]}]
        messages.append({"role": "user", "content": content})
    decision = convert_decision(reply)
    sent_again = json.loads(convert_prompt(messages).messages)[-2]
    assert json.loads(decision.messages)[0]["parts"] == sent_again["parts"]
    assert json.loads(convert_decision(reply.content).messages)[0]["parts"] == sent_again["parts"]
    assert decision.usage == {"input_tokens": 2112, "output_tokens": 89, "cached_tokens": 2000}


def as_documented(value: Any) -> Any:
    """The body with its keys in the API's spelling; the SDK leaves some in its own."""
    if isinstance(value, list):
        return [as_documented(item) for item in value]
    if isinstance(value, dict):
        return {
            re.sub("_([a-z])", lambda found: found[1].upper(), key): as_documented(item)
            for key, item in value.items()
        }
    return value


def test_gemini(wire: Callable[[str], Wire]) -> None:
    """Contents and parts as objects, pictures as bytes, read as they are sent."""
    import google.genai
    from google.genai import types as gemini

    line = wire("gemini")
    options = gemini.HttpOptions(httpx_client=line.client)
    client = google.genai.Client(api_key="none", http_options=options)
    contents: list[Any] = [
        gemini.Content(
            role="user",
            parts=[
                gemini.Part(text="What is this?"),
                gemini.Part.from_bytes(data=PNG, mime_type="image/png"),
                gemini.Part.from_uri(file_uri="gs://b/a.pdf", mime_type="application/pdf"),
            ],
        )
    ]
    for _ in range(2):
        reply = client.models.generate_content(model="gemini-x", contents=contents)
        recorded = convert_prompt(contents)
        sent = line.bodies[-1]["contents"]
        assert restore_prompt(recorded.messages) == as_documented(sent)
        assert f'"content": "{PICTURE}"' in recorded.messages
        assert recorded.reduced == ()
        assert reply.candidates
        contents.append(reply.candidates[0].content)
        response = gemini.Part.from_function_response(name="click", response={"ok": None})
        contents.append(gemini.Content(role="user", parts=[response]))
    decision = convert_decision(reply)
    assert "-" in sent[0]["parts"][1]["inlineData"]["data"], "the SDK sends URL-safe base64"
    sent_again = json.loads(convert_prompt(contents).messages)[-2]
    assert json.loads(decision.messages)[0]["parts"] == sent_again["parts"]
    assert (decision.finish_reasons, decision.model) == (("STOP",), "gemini-2.5-flash")
    assert decision.usage["output_tokens"] == 90


def test_what_was_not_given_is_absent() -> None:
    """The sentinels by which SDKs say that an argument was not given are no content."""
    import anthropic
    import openai

    for nothing in (None, openai.NOT_GIVEN, openai.omit, anthropic.NOT_GIVEN):
        recorded = convert_prompt("x", system=nothing, tools=nothing)
        assert (recorded.system, recorded.tools, recorded.reduced) == (None, None, ())
