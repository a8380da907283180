# SPDX-License-Identifier: Apache-2.0
"""What the spans of each framework leave out of the history of its example.

``docs/frameworks.md`` tells the users of it. A gap that is closed one day, by the framework or by
us, makes a test fail here: take it out then, there and in the guide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework by its gaps; the history of one without gaps has everything.

    Attributes:
        name: as in ``requirements/`` and in ``make test-frameworks NAME=…``.
        no_model_calls: only tool calls are there, by name and id; they are the steps.
        no_agent: the agent's name is on no span.
        no_call_ids: tool calls do not say which call of the decision they carry out.
        no_tool_error: why a tool failed is told to the model, and not on its span.
        no_prompt_yet: the prompt of a step comes when the model has answered.
        rewords_calls: the framework sends tool calls to the model as text of its own.
        answers_by_tool: the last step is a call of a tool that takes the answer.
        cancelled: what becomes of the task whose agent is stopped by Ctrl-C while the model thinks.
        cancelled_step: and of that step.
    """

    name: str
    no_model_calls: bool = False
    no_agent: bool = False
    no_call_ids: bool = False
    no_tool_error: bool = False
    no_prompt_yet: bool = False
    rewords_calls: bool = False
    answers_by_tool: bool = False
    cancelled: str = "cancelled"
    cancelled_step: str = "cancelled"


FRAMEWORKS: Final = (
    Framework("agent-framework"),
    Framework("autogen", no_model_calls=True),
    Framework("google-adk", no_prompt_yet=True),
    Framework("haystack", no_agent=True, no_call_ids=True),
    Framework("langgraph", no_prompt_yet=True),
    Framework("openai-agents", no_call_ids=True, no_tool_error=True, no_prompt_yet=True),
    Framework("pydantic-ai", no_prompt_yet=True),
    Framework(
        "smolagents",
        no_call_ids=True,
        rewords_calls=True,
        answers_by_tool=True,
        cancelled="interrupted",  # the root span of a run that is stopped is never ended
    ),
    Framework("strands", cancelled_step="interrupted"),  # the same for the span of a step
)
