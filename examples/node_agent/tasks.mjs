// SPDX-License-Identifier: Apache-2.0
// Tasks, steps and tool calls as OpenTelemetry spans, with the attributes that otel-taskhistory
// reads. Nothing here is particular to Node.js: any language that has an OpenTelemetry SDK can do
// the same. docs/receive.md lists the attributes.

import { SpanStatusCode, context, trace } from '@opentelemetry/api';

const tracer = trace.getTracer('node-agent');

/** Carry out one task: `work(task)` in a trace of its own. */
export function task(goal, { agent, conversationId } = {}, work) {
  const attributes = {
    'taskhistory.role': 'task',
    'taskhistory.task.goal': goal,
    'gen_ai.operation.name': 'invoke_agent',
    ...given('gen_ai.agent.name', agent),
    ...given('gen_ai.conversation.id', conversationId),
  };
  // A task is a trace: whatever span the caller is in stays outside of it.
  return run(agent ? `invoke_agent ${agent}` : 'invoke_agent', attributes, { root: true }, (span) => {
    let steps = 0;
    return work({
      id: span.spanContext().traceId,
      step: (name, inside) => step(name, ++steps, agent, inside),
      result: (value) => span.setAttribute('taskhistory.task.result', text(value)),
    });
  });
}

/** One turn of the agent: what was sent to the model, what it decided, what came of it. */
function step(name, index, agent, work) {
  const attributes = {
    'taskhistory.role': 'step',
    'taskhistory.step.index': index,
    ...given('gen_ai.agent.name', agent),
  };
  return run(name, attributes, {}, (span) =>
    work({
      id: span.spanContext().spanId,
      /** Exactly what is sent: messages as the GenAI conventions have them. */
      prompt(messages, { model } = {}) {
        span.setAttributes({
          'gen_ai.operation.name': 'chat',
          'gen_ai.input.messages': JSON.stringify(messages),
          'taskhistory.model_call.start_time_unix_nano': now(),
          ...given('gen_ai.request.model', model),
        });
      },
      decision(messages, { inputTokens, outputTokens, finishReason } = {}) {
        span.setAttributes({
          'gen_ai.output.messages': JSON.stringify(messages),
          'taskhistory.model_call.end_time_unix_nano': now(),
          ...given('gen_ai.usage.input_tokens', inputTokens),
          ...given('gen_ai.usage.output_tokens', outputTokens),
          ...given('gen_ai.response.finish_reasons', finishReason && [finishReason]),
        });
      },
      toolCall,
      result: (value) => span.setAttribute('taskhistory.step.result', text(value)),
    }),
  );
}

/** One invocation of a tool; what `work()` returns is its result. */
function toolCall(name, args, { id } = {}, work) {
  const attributes = {
    'taskhistory.role': 'tool_call',
    'gen_ai.operation.name': 'execute_tool',
    'gen_ai.tool.name': name,
    'gen_ai.tool.call.arguments': JSON.stringify(args),
    ...given('gen_ai.tool.call.id', id),
  };
  return run(`execute_tool ${name}`, attributes, {}, async (span) => {
    const result = await work();
    span.setAttribute('gen_ai.tool.call.result', text(result));
    return result;
  });
}

/** A span around `work`, which ends it; an error marks it as failed and goes on to the caller. */
async function run(name, attributes, options, work) {
  const span = tracer.startSpan(name, { attributes, ...options });
  try {
    const done = await context.with(trace.setSpan(context.active(), span), () => work(span));
    span.setAttribute('taskhistory.status', 'succeeded');
    return done;
  } catch (error) {
    span.recordException(error);
    span.setStatus({ code: SpanStatusCode.ERROR, message: String(error?.message ?? error) });
    span.setAttribute('taskhistory.status', 'failed');
    span.setAttribute('error.type', error?.name ?? typeof error);
    throw error;
  } finally {
    span.end();
  }
}

const given = (key, value) => (value === undefined ? {} : { [key]: value });
const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
const now = () => Date.now() * 1e6; // as exact as a number is here: to 256 ns
