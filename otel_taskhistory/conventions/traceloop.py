# SPDX-License-Identifier: Apache-2.0
"""OpenLLMetry (Traceloop): its decorators, and what its instrumentations add to GenAI names.

Model calls, messages and tokens are GenAI conventions of some generation, which
`otel_taskhistory.conventions.genai` reads. Here is read what they do not say: what a workflow was
asked and gave back, the true arguments and result of a tool, sessions, and the names that the
first versions used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai, genai_events, genai_flattened, genai_usage
from otel_taskhistory.conventions import traceloop_names as names
from otel_taskhistory.conventions.content import first_tokens, message_list, parsed, text_of
from otel_taskhistory.conventions.facts import ModelCall, Role, Said, SpanFacts, Tokens
from otel_taskhistory.conventions.genai_blocks import Json
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.conventions.traceloop_entity import answer_of, goal_of, invoked
from otel_taskhistory.spans.record import Attributes, LogRecord, SpanRecord

_ROLES: Final[Mapping[str, Role]] = {"workflow": "agent", "agent": "agent", "tool": "tool"}
"""Of ``traceloop.span.kind``. A task is a node or step around model calls and tools; a handoff
and the sessions of MCP are work between them."""

_MODEL_REQUESTS: Final = frozenset({"chat", "completion", "response"})
_SIGNS: Final = (
    *(names.SPAN_KIND, names.WORKFLOW_NAME, names.ENTITY_NAME, names.ENTITY_PATH),
    *(names.REQUEST_TYPE, names.TASK_STATUS),
)
_OPERATIONS: Final[Mapping[str, Role]] = {
    "create_agent": "setup",
    "execute_task": "other",
    "handoff": "other",
}
"""Operations that need no sign of ours."""

_CONVERSATIONS: Final = ("conversation_id", "thread_id", "session_id", "chat_id")
"""Associated ids that tie tasks together, the surest first."""
_AGENT: Final = f"{names.ASSOCIATED}lc_agent_name"
_MODEL: Final = f"{names.ASSOCIATED}ls_model_name"
_NO_MODEL: Final = "unknown"
_FAILURE: Final = "failure"


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    attributes = record.attributes
    operation = record.text(semconv.GEN_AI_OPERATION_NAME)
    if operation not in _OPERATIONS and not any(sign in attributes for sign in _SIGNS):
        return None
    outcome = _outcome(record)
    told = list(_told(logs)) if logs else []
    role = _role(record, operation, told)
    facts = SpanFacts(
        role=role,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=_agent(record, role),
        conversation_id=_conversation(record),
    )
    match role:
        case "agent":
            return replace(facts, goal=goal_of(record), result=answer_of(record))
        case "tool":
            return _with_tool(facts, record)
        case "model":
            calls = _told_calls(record, outcome, told) if told else _call(record, outcome, logs)
            return replace(facts, model_calls=calls)
        case "other":
            goal = goal_of(record) if record.parent_span_id is None else None
            return replace(facts, goal=goal, result=_returned(record))
        case _:
            return facts


def _role(record: SpanRecord, operation: str | None, told: list[LogRecord]) -> Role:
    kind = record.text(names.SPAN_KIND)
    if kind is not None:
        # LangChain's callbacks write the messages of a model call within the span around it.
        return "model" if kind == "task" and told else _ROLES.get(kind, "other")
    if operation is not None and operation in _OPERATIONS:
        return _OPERATIONS[operation]
    request = record.text(names.REQUEST_TYPE)
    if request is not None:
        return "model" if request in _MODEL_REQUESTS else "other"
    if operation is None and _is_first_generation(record.attributes):
        return "model"
    return genai.role_of(record) or "other"


def _outcome(record: SpanRecord) -> Outcome:
    """As for any span; a failure that a callback noted counts where nothing else was set."""
    outcome = outcome_of(record)
    unset = record.status_code == "UNSET" and record.text(semconv.ERROR_TYPE) is None
    if outcome.status == "succeeded" and unset and record.text(names.TASK_STATUS) == _FAILURE:
        return Outcome("failed")
    return outcome


def _agent(record: SpanRecord, role: Role) -> str | None:
    name = record.text(semconv.GEN_AI_AGENT_NAME) or record.text(_AGENT)
    if name is None and record.text(names.SPAN_KIND) == "agent":
        name = record.text(names.ENTITY_NAME)
    return name


def _conversation(record: SpanRecord) -> str | None:
    said = record.text(semconv.GEN_AI_CONVERSATION_ID)
    if said is not None:
        return said
    for name in _CONVERSATIONS:
        value = record.attributes.get(names.ASSOCIATED + name)
        if isinstance(value, str) and value:
            return value
        if type(value) is int and abs(value) < 2**63:
            return str(value)
    return None


def _with_tool(facts: SpanFacts, record: SpanRecord) -> SpanFacts:
    found = invoked(record)
    if found.failed and facts.status == "succeeded":
        return replace(facts, tool_call=found.call, status="failed", error=found.error)
    return replace(facts, tool_call=found.call)


def _returned(record: SpanRecord) -> str | None:
    """What a decorated function gave back; the states of a graph are nobody's result."""
    given = record.text(names.ENTITY_OUTPUT)
    if given is None or given.startswith('{"outputs"'):
        return None
    return text_of(parsed(given)) if given.startswith('"') else given


# --- model calls ------------------------------------------------------------------------------


def _call(record: SpanRecord, outcome: Outcome, logs: Sequence[LogRecord]) -> tuple[ModelCall, ...]:
    """The model call of a span: what the GenAI conventions do not say of it, or all of it."""
    attributes = record.attributes
    if genai.role_of(record) == "model":
        call = ModelCall(0, outcome.status, record.start_ns, record.end_ns, error=outcome.error)
    else:
        call = genai.model_call(
            attributes, record, outcome, ordinal=0, events=record.events, logs=logs
        )
    if call.model is None:
        call = replace(call, model=_model_of(record))
    if call.finish_reason is None:
        reasons = (record.text(key) for key in names.FINISH_REASONS)
        call = replace(call, finish_reason=next((one for one in reasons if one), None))
    if _is_first_generation(attributes):
        prompt = genai_flattened.messages(attributes, names.OLD_PROMPTS, "user")
        decision = genai_flattened.messages(attributes, names.OLD_COMPLETIONS, "assistant")
        call = replace(call, prompt=_listed(prompt), decision=_listed(decision))
    return (replace(call, tokens=_tokens(attributes)),)


def _model_of(record: SpanRecord) -> str | None:
    for key in (
        *(semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL),
        *(names.OLD_RESPONSE_MODEL, names.OLD_REQUEST_MODEL, _MODEL),
    ):
        model = record.text(key)
        if model is not None and model != _NO_MODEL:
            return model
    return None


def _tokens(attributes: Attributes) -> Tokens:
    """With the names of the first versions; where one of both is not told, the sum may tell it."""
    known = genai_usage.tokens([attributes])
    given = _or(known.input, first_tokens(attributes, names.OLD_INPUT_TOKENS))
    made = _or(known.output, first_tokens(attributes, names.OLD_OUTPUT_TOKENS))
    total = first_tokens(attributes, names.TOTAL_TOKENS)
    if total is not None and given is None and made is not None:
        given = max(total - made, 0)
    elif total is not None and made is None and given is not None:
        made = max(total - given, 0)
    return replace(known, input=given, output=made)


def _or(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _is_first_generation(attributes: Attributes) -> bool:
    return f"{names.OLD_PROMPTS}.0.content" in attributes or names.OLD_REQUEST_MODEL in attributes


def _listed(messages: list[Json]) -> Said | None:
    return message_list(messages) if messages else None


# --- messages in log records ------------------------------------------------------------------


def _told(logs: Sequence[LogRecord]) -> Iterator[LogRecord]:
    """The records that tell messages."""
    for log in logs:
        if genai_events.name_of(log) in names.MESSAGE_EVENTS:
            yield log


def _told_calls(
    record: SpanRecord, outcome: Outcome, told: list[LogRecord]
) -> tuple[ModelCall, ...]:
    """The model calls whose messages were written within a span: a prompt begins each."""
    groups: list[list[LogRecord]] = []
    answered = True
    for log in told:
        is_choice = genai_events.name_of(log) == genai_events.CHOICE
        if not groups or (answered and not is_choice):
            groups.append([])
        groups[-1].append(log)
        answered = is_choice
    calls = []
    for ordinal, group in enumerate(groups):
        first, last = ordinal == 0, ordinal == len(groups) - 1
        calls.append(
            genai.model_call(
                {},
                record,
                outcome if last else Outcome("succeeded"),
                ordinal=ordinal,
                started_ns=record.start_ns if first else _time(group[0]) or record.start_ns,
                ended_ns=record.end_ns if last else _time(group[-1]) or record.end_ns,
                logs=group,
            )
        )
    return tuple(calls)


def _time(log: LogRecord) -> int:
    return log.time_ns or log.observed_ns
