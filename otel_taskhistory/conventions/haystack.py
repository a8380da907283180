# SPDX-License-Identifier: Apache-2.0
"""Haystack's own spans, as its OpenTelemetry tracer writes them.

No attribute says what a span is: its name does. Content stands in JSON, without GenAI names; model
and tokens are in the metadata of the replies. A tool that failed leaves no error on its span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_taskhistory.conventions import haystack_messages as chat
from otel_taskhistory.conventions.content import as_text, message_list, parsed, text_of, tokens_of
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, Tokens, ToolCall
from otel_taskhistory.conventions.genai_messages import call_ids
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.conventions.traceloop_json import readable
from otel_taskhistory.conventions.traceloop_values import goal_in
from otel_taskhistory.recording.usage import convert_usage
from otel_taskhistory.spans.record import LogRecord, SpanRecord

_OURS: Final = "haystack."
_AGENT: Final = "haystack.agent.run"
_MODEL: Final = "haystack.agent.step.llm"
_TOOL: Final = "haystack.agent.step.tool"
_PIPELINES: Final = frozenset({"haystack.pipeline.run", "haystack.async_pipeline.run"})
_COMPONENT: Final = "haystack.component.run"

_AGENT_INPUT: Final = "haystack.agent.input"
_AGENT_OUTPUT: Final = "haystack.agent.output"
_PIPELINE_INPUT: Final = "haystack.pipeline.input_data"
_PIPELINE_OUTPUT: Final = "haystack.pipeline.output_data"
_COMPONENT_NAME: Final = "haystack.component.name"
_COMPONENT_TYPE: Final = "haystack.component.type"
_COMPONENT_INPUT: Final = "haystack.component.input"
_COMPONENT_OUTPUT: Final = "haystack.component.output"
_TOOL_NAME: Final = "haystack.tool.name"
_TOOL_CALL_ID: Final = "haystack.tool.call.id"
_TOOL_ERROR: Final = "haystack.tool.error"

_GENERATOR: Final = "Generator"
"""How the types of components end that ask a model."""
_TOOL_INVOKER: Final = "ToolInvoker"
_AGENT_TYPE: Final = "Agent"


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    name = record.name
    if not name.startswith(_OURS):
        return None
    outcome = outcome_of(record)
    facts = SpanFacts(status=outcome.status, error=outcome.error, error_type=outcome.error_type)
    if name == _AGENT:
        return replace(facts, role="agent", goal=_asked(record), result=_answered(record))
    if name == _MODEL:
        call = _model_call(record, outcome, f"{_MODEL}.input", f"{_MODEL}.output")
        return replace(facts, role="model", model_calls=(call,))
    if name == _TOOL:
        return _with_tool(facts, record, f"{_TOOL}.input", f"{_TOOL}.output")
    if name in _PIPELINES:
        # Many pipelines ask no model: what the spans below are tells whether an agent is at work.
        return replace(facts, goal=_pipeline_goal(record), result=_pipeline_result(record))
    if name == _COMPONENT:
        return _component(facts, record, outcome)
    return facts


def _component(facts: SpanFacts, record: SpanRecord, outcome: Outcome) -> SpanFacts:
    kind = record.text(_COMPONENT_TYPE) or ""
    if kind.endswith(_GENERATOR):
        call = _model_call(record, outcome, _COMPONENT_INPUT, _COMPONENT_OUTPUT)
        return replace(facts, role="model", model_calls=(call,))
    if kind == _TOOL_INVOKER:
        return _with_tool(facts, record, _COMPONENT_INPUT, _COMPONENT_OUTPUT)
    if kind == _AGENT_TYPE:  # its run, right below, has no name of its own
        return replace(facts, agent=record.text(_COMPONENT_NAME))
    return facts


# --- agents and pipelines ---------------------------------------------------------------------


def _asked(record: SpanRecord) -> str | None:
    """The last message of the user among the input of an agent."""
    value, whole = readable(record.attributes.get(_AGENT_INPUT))
    messages = chat.messages_in(value.get("messages")) if isinstance(value, Mapping) else None
    if messages is None or (not whole and len(messages) > 1):
        return None
    return _last_text(messages, "user")


def _answered(record: SpanRecord) -> str | None:
    """The last message of an agent's output: of the model, or of the tool that it ended with."""
    value = parsed(record.attributes.get(_AGENT_OUTPUT))
    if not isinstance(value, Mapping):
        return None
    last = value.get("last_message")
    if not chat.is_message(last):
        messages = chat.messages_in(value.get("messages"))
        last = messages[-1] if messages else None
    return chat.text_of(last) if last is not None and chat.role_of(last) != "user" else None


def _pipeline_goal(record: SpanRecord) -> str | None:
    """The question among the inputs of the components: messages, or the one text there is."""
    value = parsed(record.attributes.get(_PIPELINE_INPUT))
    if not isinstance(value, Mapping):
        return None
    for inputs in value.values():
        if isinstance(inputs, Mapping):
            for given in inputs.values():
                messages = chat.messages_in(given)
                if messages is not None:
                    return _last_text(messages, "user")
    return goal_in(value)


def _pipeline_result(record: SpanRecord) -> str | None:
    """The replies or answer among the outputs, else all outputs."""
    given = record.attributes.get(_PIPELINE_OUTPUT)
    value = parsed(given)
    outputs = list(value.values()) if isinstance(value, Mapping) else []
    for output in outputs:
        if isinstance(output, Mapping):
            for name in ("replies", "last_message", "answers"):
                if text := _reply_text(output.get(name)):
                    return text
    return as_text(given) if outputs else None


def _reply_text(said: Any) -> str | None:
    messages = chat.messages_in(said)
    if messages is not None:
        return chat.text_of(messages[0])
    first = said[0] if isinstance(said, list) and said else None
    if isinstance(first, Mapping):  # an answer that was built of a reply
        fields = first.get("init_parameters", first)
        first = fields.get("data") if isinstance(fields, Mapping) else None
    return text_of(first)


def _last_text(messages: list[Mapping[str, Any]], role: str) -> str | None:
    found = (message for message in reversed(messages) if chat.role_of(message) == role)
    last = next(found, None)
    return chat.text_of(last) if last is not None else None


# --- model calls ------------------------------------------------------------------------------


def _model_call(record: SpanRecord, outcome: Outcome, given: str, made: str) -> ModelCall:
    decision, metas = _decision(record.attributes.get(made))
    meta = metas[0] if metas else {}
    return ModelCall(
        ordinal=0,
        status=outcome.status,
        started_ns=record.start_ns,
        ended_ns=record.end_ns,
        model=_whole(meta.get("model")),
        prompt=_prompt(record.attributes.get(given)),
        decision=_said(decision) if isinstance(decision, list) else decision,
        finish_reason=_whole(meta.get("finish_reason")),
        tokens=_tokens(meta.get("usage")),
        call_ids=call_ids(decision) if isinstance(decision, list) else (),
        response_id=_whole(meta.get("id")),
        error=outcome.error,
    )


def _prompt(given: Any) -> Said | None:
    """The messages of a chat generator, or the text of any other."""
    value, whole = readable(given)
    if isinstance(value, Mapping):
        messages = chat.messages_in(value.get("messages"))
        if messages is not None and whole:
            return _said([chat.message(one) for one in messages])
        if messages is None and isinstance(text := value.get("messages", value.get("prompt")), str):
            system = value.get("system_prompt")
            parts = _said(chat.parts(system)) if isinstance(system, str) and system else None
            if parts is None:
                return Said(text, structured=False)
            return Said(_said([_user(text)]).raw, structured=True, system=parts.raw)
    text = as_text(given)
    return Said(text, structured=False) if text is not None else None


def _decision(given: Any) -> tuple[list[chat.Json] | Said | None, list[Mapping[str, Any]]]:
    """The replies as messages (text that was cut: as it is), and what is said of each."""
    value, whole = readable(given)
    replies = value.get("replies") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(replies, list):
        text = as_text(given)
        return (Said(text, structured=False) if text is not None else None), []
    listed: list[chat.Json]
    if messages := chat.messages_in(replies):
        listed, metas = [chat.message(one) for one in messages], list(map(chat.meta_of, messages))
    else:
        listed, metas = _texts(replies, value.get("meta"))
    if not whole:
        return Said(str(given), structured=False), metas
    return (listed or None), metas


def _texts(replies: list[Any], meta: Any) -> tuple[list[chat.Json], list[Mapping[str, Any]]]:
    """The same for a generator of text, which lists texts and what is said of them apart."""
    metas = [one for one in meta if isinstance(one, Mapping)] if isinstance(meta, list) else []
    texts = [as_text(reply) or "" for reply in replies]
    listed: list[chat.Json] = [{"role": "assistant", "parts": chat.parts(one)} for one in texts]
    for message, said in zip(listed, metas, strict=False):
        if reason := text_of(said.get("finish_reason")):
            message["finish_reason"] = reason
    return listed, metas


def _said(messages: list[chat.Json]) -> Said:
    return message_list(messages)


def _whole(value: Any) -> str | None:
    return text_of(value) if type(value) is str else None


def _user(text: str) -> chat.Json:
    return {"role": "user", "parts": chat.parts(text)}


def _tokens(usage: Any) -> Tokens:
    known = convert_usage(usage)
    return Tokens(
        *(
            tokens_of(known.get(name))
            for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        )
    )


# --- tools ------------------------------------------------------------------------------------


def _with_tool(facts: SpanFacts, record: SpanRecord, given: str, made: str) -> SpanFacts:
    arguments = record.attributes.get(given)
    result = record.attributes.get(made)
    call = ToolCall(
        name=record.text(_TOOL_NAME) or record.text(_COMPONENT_NAME) or _TOOL_INVOKER,
        call_id=record.text(_TOOL_CALL_ID),
        arguments=as_text(arguments),
        result=as_text(result),
    )
    flag = record.attributes.get(_TOOL_ERROR)
    error = _error_in(result)
    if record.text(_TOOL_NAME) is None:
        call, error = _invoked(call, arguments, result)
    facts = replace(facts, role="tool", tool_call=call)
    failed = flag is True or (error is not None and flag is not False)
    if failed and facts.status == "succeeded":
        return replace(facts, status="failed", error=error)
    return facts


def _error_in(result: Any) -> str | None:
    """The error that stands in the place of a result."""
    value = parsed(result) if isinstance(result, str) and '"error"' in result else result
    if isinstance(value, Mapping) and value.keys() == {"error"}:
        return text_of(value["error"])
    return None


def _invoked(call: ToolCall, given: Any, made: Any) -> tuple[ToolCall, str | None]:
    """The calls that a tool invoker carried out, one or several, and the error of one that failed.

    It was handed the conversation, and gives back a message for each call.
    """
    asked = _tool_parts(given, ("messages",), "tool_call")
    came = _tool_parts(made, ("tool_messages", "messages"), "tool_call_response")
    errors = [as_text(part.get("response")) for part in came if part.get("error") is True]
    names = [str(part["name"]) for part in asked or came if part.get("name")]
    if not names:
        return call, next(iter(errors), None)
    only = len(names) == 1
    ids = [part["id"] for part in asked or came if isinstance(part.get("id"), str)]
    arguments = [part.get("arguments") for part in asked]
    results = [part.get("response") for part in came]
    return (
        ToolCall(
            name=", ".join(dict.fromkeys(names)),
            call_id=ids[0] if only and ids else None,
            arguments=as_text(arguments[0] if only else arguments) if arguments else None,
            result=as_text(results[0] if only and len(results) == 1 else results)
            if results
            else None,
        ),
        next(iter(errors), None),
    )


def _tool_parts(value: Any, keys: tuple[str, ...], kind: str) -> list[chat.Json]:
    """Parts of a kind: those of the last message that asks, or of all messages that answer."""
    value = parsed(value)
    if not isinstance(value, Mapping):
        return []
    messages = next((found for key in keys if (found := chat.messages_in(value.get(key)))), [])
    if kind == "tool_call":
        messages = [one for one in messages if chat.role_of(one) == "assistant"][-1:]
    made = (part for one in messages for part in chat.message(one)["parts"])
    return [part for part in made if part["type"] == kind]
