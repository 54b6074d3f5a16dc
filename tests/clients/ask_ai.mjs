import { generateText, embed, tool, stepCountIs } from 'ai';
import * as ai from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { z } from 'zod';
import { NodeTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { defaultResource, detectResources, envDetector } from '@opentelemetry/resources';

const exporter = new OTLPTraceExporter({ url: process.env.OTEL_EXPORTER_OTLP_ENDPOINT + '/v1/traces' });
const resource = defaultResource().merge(detectResources({ detectors: [envDetector] }));  // OTEL_SERVICE_NAME
const provider = new NodeTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(exporter)] });
provider.register();
const telemetry = { isEnabled: true, functionId: 'answer', metadata: { tenant: 'acme' } };
const options = { experimental_telemetry: telemetry, telemetry };
if (ai.registerTelemetry) {
  const otel = await import('@ai-sdk/otel');
  ai.registerTelemetry(new (otel.OpenTelemetry ?? otel.OpenTelemetryIntegration)());
}
const openai = createOpenAI({ apiKey: 'none', baseURL: process.env.OPENAI_BASE_URL });
const search = tool({
  description: 'Search the documents.',
  inputSchema: z.object({ query: z.string() }),
  execute: async ({ query }) => [{ id: 'd0', text: process.env.DOCUMENT, score: 0.9 }],
});
for (const prompt of ['How long does a refund take?', 'Please break.']) {
  try {
    const said = await generateText({
      model: openai.chat('gpt-5-mini'), system: 'You answer customers.', prompt, tools: { search },
      stopWhen: stepCountIs(3), maxRetries: 0, ...options,
    });
    console.error(said.text);
  } catch (error) { console.error(String(error)); }
}
await provider.forceFlush();
await provider.shutdown();
