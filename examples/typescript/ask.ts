// An application in TypeScript, recorded over OTLP: `npm install && npm start` beside `ragpulse serve`.
// The root has question and answer, the span of the search its documents.
import { trace, type Span } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';

interface Passage { id: string; content: string; score: number }

const collector = process.env.RAGPULSE_URL ?? 'http://127.0.0.1:4318';
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': process.env.OTEL_SERVICE_NAME ?? 'typescript' }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: `${collector}/v1/traces` }))],
});
provider.register();
const tracer = trace.getTracer('helpdesk');

function search(query: string): Passage[] {
  return tracer.startActiveSpan('search', (span: Span) => {
    const found = [{ id: 'refunds', content: 'A refund is possible within thirty days of the purchase.', score: 0.9 }];
    span.setAttributes({
      'gen_ai.operation.name': 'retrieval',
      'gen_ai.retrieval.query.text': query,
      'gen_ai.retrieval.documents': JSON.stringify(found),
    });
    span.end();
    return found;
  });
}

function answer(question: string): string {
  return tracer.startActiveSpan('answer', (span: Span) => {
    const response = search(question)[0].content;
    span.setAttributes({ 'openinference.span.kind': 'CHAIN', 'input.value': question, 'output.value': response });
    span.end();
    return response;
  });
}

console.log(answer('Is a refund possible after the purchase?'));
await provider.shutdown();
