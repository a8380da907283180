// SPDX-License-Identifier: Apache-2.0
// What an instrumentation in Node.js writes that knows nothing of this library: the GenAI semantic
// conventions alone. Also what JavaScript has and other languages have not.

import { SpanKind, SpanStatusCode, context, trace } from '@opentelemetry/api';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';

const Exporter =
  process.env.OTEL_EXPORTER_OTLP_PROTOCOL === 'http/json' ? JsonExporter : ProtobufExporter;
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'plain-node' }),
  spanProcessors: [new SimpleSpanProcessor(new Exporter())],
});
const tracer = provider.getTracer('plain');

const text = (role, content) => ({ role, parts: [{ type: 'text', content }] });
const root = tracer.startSpan('invoke_agent plain', {
  attributes: {
    'gen_ai.operation.name': 'invoke_agent',
    'gen_ai.agent.name': 'plain',
    whole: Number.MAX_SAFE_INTEGER,
    part: 0.1,
    list: ['a', 'ü', '😀'],
    half: 'half an emoji: \ud83d',
  },
});
const inside = trace.setSpan(context.active(), root);
const chat = tracer.startSpan(
  'chat model-1',
  {
    kind: SpanKind.CLIENT,
    attributes: {
      'gen_ai.operation.name': 'chat',
      'gen_ai.request.model': 'model-1',
      'gen_ai.input.messages': JSON.stringify([text('user', 'Wie viele Schrauben? 🔩')]),
      'gen_ai.output.messages': JSON.stringify([text('assistant', 'Zwölf.')]),
      'gen_ai.usage.input_tokens': 7,
      'gen_ai.usage.output_tokens': 3,
    },
  },
  inside,
);
chat.end();
const tool = tracer.startSpan(
  'execute_tool count',
  {
    attributes: {
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': 'count',
      'gen_ai.tool.call.arguments': '{"part":"bolts"}',
    },
  },
  inside,
);
tool.recordException(new RangeError('no such part'));
tool.setStatus({ code: SpanStatusCode.ERROR, message: 'no such part' });
tool.end();
root.end();
console.log(root.spanContext().traceId);
await provider.shutdown();
