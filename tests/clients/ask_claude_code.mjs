import { spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const home = mkdtempSync(join(tmpdir(), 'claude-'));
const collector = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
const env = {
  PATH: process.env.PATH, HOME: home, ANTHROPIC_API_KEY: 'none', ANTHROPIC_MODEL: 'claude-sonnet-4-5',
  ANTHROPIC_BASE_URL: process.env.OPENAI_BASE_URL.replace(/\/v1$/, ''),
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1',
  CLAUDE_CODE_ENABLE_TELEMETRY: '1', CLAUDE_CODE_ENHANCED_TELEMETRY_BETA: '1', OTEL_TRACES_EXPORTER: 'otlp',
  ENABLE_BETA_TRACING_DETAILED: '1', BETA_TRACING_ENDPOINT: collector, OTEL_LOG_USER_PROMPTS: '1',
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', OTEL_EXPORTER_OTLP_ENDPOINT: collector,
};
for (const question of ['How long does a refund take?', 'Please break.']) {
  const run = spawnSync('node_modules/.bin/claude', ['-p', question], { env, encoding: 'utf8', cwd: process.cwd() });
  console.error(run.stdout, run.stderr);
}
