import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { createTool } from '@mastra/core/tools';
import { Observability } from '@mastra/observability';
import { OtelExporter } from '@mastra/otel-exporter';
import { createOpenAI } from '@ai-sdk/openai';
import { z } from 'zod';

const openai = createOpenAI({ apiKey: 'none', baseURL: process.env.OPENAI_BASE_URL });
const search = createTool({
  id: 'search',
  description: 'Search the documents.',
  inputSchema: z.object({ query: z.string() }),
  execute: async () => [{ id: 'd0', text: process.env.DOCUMENT, score: 0.9 }],
});
const helpdesk = new Agent({
  id: 'helpdesk', name: 'helpdesk', instructions: 'You answer customers.', model: openai.chat('gpt-5-mini'),
  tools: { search }, maxRetries: 0,
});
const exporter = new OtelExporter({
  provider: { custom: { endpoint: process.env.OTEL_EXPORTER_OTLP_ENDPOINT + '/v1/traces', protocol: 'http/protobuf' } },
});
const mastra = new Mastra({
  agents: { helpdesk },
  observability: new Observability({ configs: { otel: { serviceName: 'mastra', exporters: [exporter] } } }),
});
for (const question of ['How long does a refund take?', 'Please break.']) {
  try {
    const said = await mastra.getAgent('helpdesk').generate(question, { maxSteps: 3, modelSettings: { maxRetries: 0 } });
    console.error(said.text);
  } catch (error) { console.error(String(error)); }
}
await mastra.shutdown();
