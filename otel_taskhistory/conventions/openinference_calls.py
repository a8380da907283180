# SPDX-License-Identifier: Apache-2.0
"""The model call that a span of OpenInference is, out of flattened lists, raw values and counts.

What is told in two ways is taken from the one that says more, see
`otel_taskhistory.conventions.openinference_raw.believed`.
"""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import openinference_raw as raw
from otel_taskhistory.conventions.content import (
    cost_of,
    first_tokens,
    message_list,
    parsed,
    text_of,
)
from otel_taskhistory.conventions.facts import ModelCall, Said, Tokens
from otel_taskhistory.conventions.genai_messages import is_whole, said_of
from otel_taskhistory.conventions.openinference_messages import FlattenedTexts, Lists
from otel_taskhistory.conventions.openinference_parts import (
    arguments_of,
    call_ids,
    parts_of,
    pieces,
    text_parts,
)
from otel_taskhistory.conventions.openinference_values import said
from otel_taskhistory.conventions.outcome import Outcome
from otel_taskhistory.recording.formats import Json
from otel_taskhistory.recording.replies import Reply
from otel_taskhistory.recording.usage import convert_usage
from otel_taskhistory.spans.record import Attributes, SpanRecord

INPUT: Final = "input.value"
OUTPUT: Final = "output.value"

_TEMPLATE: Final = "llm.prompt_template.template"
_PROMPT: Final = "llm.token_count.prompt"
_COMPLETION: Final = "llm.token_count.completion"


def is_of_openinference(record: SpanRecord) -> bool:
    """Whether one of the dialect's own instrumentations made the span."""
    return "openinference" in record.scope.name


def is_abandoned(record: SpanRecord, outcome: Outcome) -> bool:
    """Whether nobody read the answer to its end.

    These instrumentations set OK or ERROR on each call that came to an end.
    """
    return (
        outcome.status == "succeeded"
        and record.status_code == "UNSET"
        and record.text("llm.finish_reason") is None
        and is_of_openinference(record)
    )


def model_call(record: SpanRecord, lists: Lists, outcome: Outcome) -> ModelCall:
    """What an LLM span says of its call."""
    attributes = record.attributes
    request = raw.json_of(attributes.get(INPUT))
    reply = raw.reply_of(raw.json_of(attributes.get(OUTPUT)))
    finish_reason = record.text("llm.finish_reason") or (
        reply.reasons[0] if reply is not None and reply.reasons else None
    )
    answered = _answer(record, lists, reply, finish_reason)
    return ModelCall(
        ordinal=0,
        status=outcome.status,
        started_ns=record.start_ns,
        ended_ns=record.end_ns,
        model=record.text("llm.response.model_name")
        or record.text("llm.model_name")
        or (reply.model if reply is not None else None)
        or record.text("llm.request.model_name")
        or (text_of(request.get("model")) if isinstance(request, dict) else None),
        prompt=_prompt(record, lists, request),
        decision=answered if isinstance(answered, Said) else _as_said(answered),
        finish_reason=finish_reason,
        tokens=_tokens(attributes, reply),
        cost=_cost(attributes),
        error=outcome.error,
        call_ids=call_ids(answered) if isinstance(answered, list) else (),
        response_id=reply.response_id if reply is not None else None,
    )


def _as_said(messages: list[Json] | None) -> Said | None:
    return message_list(messages) if messages else None


def _is_derived(record: SpanRecord, key: str) -> bool:
    """Whether attributes of this dialect were made of the GenAI ones that stand beside them.

    Some packages translate the spans of other instrumentations; what those said is the original,
    if no limit has cut it: the flattened values are short, and whole then.
    """
    original = said_of(record.attributes.get(key))
    is_list = original is not None and original.structured and is_whole(original)
    return is_list and not is_of_openinference(record)


def _prompt(record: SpanRecord, lists: Lists, request: Any) -> Said | None:
    if _is_derived(record, semconv.GEN_AI_INPUT_MESSAGES):
        return None
    messages, exact = raw.prompt_of(request)
    messages = raw.believed(messages, lists.input.messages(), exact=exact)
    given = said(record.attributes.get(INPUT))
    if given is not None and raw.is_text(given) and raw.is_only_instructions(messages):
        # openai-agents flattens instructions, but not an input that is one text.
        messages = [*messages, {"role": "user", "parts": text_parts(given)}]
    if pieces(messages):
        return message_list(messages)
    if (texts := _texts(lists.prompts, "user")) is not None:
        return texts
    if given is None and not messages:
        given = said(record.attributes.get(_TEMPLATE))
    return _as_said(messages) if given is None else Said(given, structured=False)


def _answer(
    record: SpanRecord, lists: Lists, reply: Reply | None, finish_reason: str | None
) -> list[Json] | Said | None:
    """The decision: messages, or a plain text; None when the model gave no answer."""
    if _is_derived(record, semconv.GEN_AI_OUTPUT_MESSAGES):
        return None
    told = reply.messages if reply is not None else None
    messages = _with_function_call(
        raw.believed(told, lists.output.messages(), exact=False), record.attributes
    )
    reasons = reply.reasons if reply is not None else []
    if not reasons and finish_reason is not None:
        reasons = [finish_reason]
    if any(parts_of(message) for message in messages):
        return raw.finished(messages, reasons)
    texts = _texts(lists.choices, "assistant")
    if texts is not None:
        return texts
    given = said(record.attributes.get(OUTPUT))
    if reply is None and given is not None:
        return Said(given, structured=False)
    # An empty answer is one when the model said why it stopped; an abandoned one is none.
    return raw.finished(messages, reasons) if messages and reasons else None


def _with_function_call(messages: list[Json], attributes: Attributes) -> list[Json]:
    """The messages, with a call that is told in the way before there were lists of calls."""
    held = parsed(attributes.get("llm.function_call"))
    if not isinstance(held, dict) or not isinstance(name := held.get("name"), str):
        return messages
    if any(part.get("type") == "tool_call" for one in messages for part in parts_of(one)):
        return messages
    call: Json = {"type": "tool_call", "name": name}
    if "arguments" in held:
        call["arguments"] = arguments_of(held["arguments"])
    if not messages:
        return [{"role": "assistant", "parts": [call]}]
    return [*messages[:-1], {**messages[-1], "parts": [*parts_of(messages[-1]), call]}]


def _texts(given: FlattenedTexts, role: str) -> Said | None:
    """Texts of a completions API: one is plain text, several are messages."""
    texts = [text for text in given.texts() if said(text) is not None]
    if len(texts) == 1:
        return Said(texts[0], structured=False)
    return _as_said([{"role": role, "parts": text_parts(text)} for text in texts])


def _tokens(attributes: Attributes, reply: Reply | None) -> Tokens:
    """Counts as the attributes say them; what they leave out, the response may say."""
    counts = {
        "input_tokens": first_tokens(attributes, _PROMPT),
        "output_tokens": first_tokens(attributes, _COMPLETION),
        "cached_tokens": first_tokens(
            attributes, f"{_PROMPT}_details.cache_read", f"{_PROMPT}_details.cache_input"
        ),
        "reasoning_tokens": first_tokens(attributes, f"{_COMPLETION}_details.reasoning"),
    }
    if reply is not None and None in counts.values():
        usage = convert_usage(reply.usage)
        for name, count in counts.items():
            if count is None:
                counts[name] = first_tokens(usage, name)
    total = first_tokens(attributes, "llm.token_count.total")
    prompt, completion = counts["input_tokens"], counts["output_tokens"]
    if total is not None and completion is not None and prompt is None:
        prompt = max(total - completion, 0)
    elif total is not None and prompt is not None and completion is None:
        completion = max(total - prompt, 0)
    return Tokens(prompt, completion, counts["cached_tokens"], counts["reasoning_tokens"])


def _cost(attributes: Attributes) -> float | None:
    """US dollars, in total or of both sides together."""
    total = cost_of(attributes.get("llm.cost.total"))
    if total is not None:
        return total
    sides = [cost_of(attributes.get(f"llm.cost.{side}")) for side in ("prompt", "completion")]
    known = [cost for cost in sides if cost is not None]
    return sum(known) if known else None
