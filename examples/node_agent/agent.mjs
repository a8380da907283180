// SPDX-License-Identifier: Apache-2.0
// A tiny Host Agent in Node.js that writes into a task history, by way of
// `otel-taskhistory receive`. The model is a script, so it needs no key and no network.
//
//   npm install
//   otel-taskhistory receive &
//   node agent.mjs "How many bolts are in stock?"
//   otel-taskhistory show latest

import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';

import { task } from './tasks.mjs';

// Where to: OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.
const Exporter =
  process.env.OTEL_EXPORTER_OTLP_PROTOCOL === 'http/json' ? JsonExporter : ProtobufExporter;
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'node-agent' }),
  // Steps are on disk half a second after they ended, and not only every five seconds.
  spanProcessors: [new BatchSpanProcessor(new Exporter(), { scheduledDelayMillis: 500 })],
});
provider.register();

const STOCK = { bolts: 120, nuts: 0 };

/** The tools of this agent. */
const tools = {
  async count_stock({ part }) {
    if (!(part in STOCK)) throw new RangeError(`no such part: ${part}`);
    return { part, in_stock: STOCK[part] };
  },
};

/** The model: asks for the count of the part that the goal names, then says what it was told. */
async function model(messages) {
  const last = messages.at(-1).parts[0];
  if (last.type !== 'tool_call_response') {
    const part = /bolts|nuts|washers/.exec(last.content)?.[0] ?? 'washers';
    const call = { type: 'tool_call', id: 'call-1', name: 'count_stock', arguments: { part } };
    return { parts: [call], finishReason: 'tool_call', inputTokens: 40, outputTokens: 12 };
  }
  const { part, in_stock: number } = last.response;
  const content = `There are ${number} ${part} in stock.`;
  return { parts: [{ type: 'text', content }], finishReason: 'stop', inputTokens: 60, outputTokens: 9 };
}

/** Turn by turn, until the model has nothing more to ask for. */
function answer(goal) {
  return task(goal, { agent: 'stock-clerk' }, async (task) => {
    const messages = [
      { role: 'system', parts: [{ type: 'text', content: 'Answer from the stock list.' }] },
      { role: 'user', parts: [{ type: 'text', content: goal }] },
    ];
    for (;;) {
      const said = await task.step('ask the model', async (step) => {
        step.prompt(messages, { model: 'script-1' });
        const reply = await model(messages);
        const message = { role: 'assistant', parts: reply.parts, finish_reason: reply.finishReason };
        step.decision([message], reply);
        messages.push(message);
        for (const call of reply.parts.filter((part) => part.type === 'tool_call')) {
          const response = await step.toolCall(call.name, call.arguments, { id: call.id }, () =>
            tools[call.name](call.arguments),
          );
          messages.push({ role: 'tool', parts: [{ type: 'tool_call_response', id: call.id, response }] });
        }
        if (reply.finishReason !== 'stop') return undefined;
        step.result(reply.parts[0].content);
        return reply.parts[0].content;
      });
      if (said !== undefined) {
        task.result(said);
        console.log(task.id);
        return;
      }
    }
  });
}

try {
  await answer(process.argv[2] ?? 'How many bolts are in stock?');
} catch (error) {
  console.error(String(error));
  process.exitCode = 1;
} finally {
  await provider.shutdown(); // sends what has not been sent yet
}
