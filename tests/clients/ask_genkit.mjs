import { genkit, z, Document } from 'genkit';
import { enableTelemetry } from 'genkit/tracing';
import { openAICompatible } from '@genkit-ai/compat-oai';
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';

const exporter = new OTLPTraceExporter({ url: process.env.OTEL_EXPORTER_OTLP_ENDPOINT + '/v1/traces' });
const processor = new BatchSpanProcessor(exporter);
await enableTelemetry({ spanProcessors: [processor] });
const ai = genkit({
  plugins: [openAICompatible({ name: 'openai', apiKey: 'none', baseURL: process.env.OPENAI_BASE_URL, maxRetries: 0 })],
});
const documents = ai.defineRetriever({ name: 'documents' }, async () => ({
  documents: [Document.fromText(process.env.DOCUMENT, { id: 'd0' })],
}));
const answer = ai.defineFlow(
  { name: 'answer', inputSchema: z.string(), outputSchema: z.string() },
  async (question) => {
    const docs = await ai.retrieve({ retriever: documents, query: question });
    const said = await ai.generate({ model: 'openai/gpt-5-mini', system: 'You answer customers.', prompt: question, docs });
    return said.text;
  },
);
for (const question of ['How long does a refund take?', 'Please break.']) {
  try { console.error(await answer(question)); } catch (error) { console.error(String(error)); }
}
await processor.forceFlush();
process.exit(0);
