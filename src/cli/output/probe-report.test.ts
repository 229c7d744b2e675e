import { expect, test } from 'vitest';
import { type ProbeReport, renderReport } from './probe-report.js';

const report: ProbeReport = {
  server: 'files',
  transport: 'stdio',
  era: 'legacy',
  version: '2025-11-25',
  serverInfo: { name: 'real\u001b[31m', version: '1.0' },
  capabilities: { tools: {} },
  instructions: null,
  startMs: 12,
  tools: [{ name: 'read\nhostler: fine', bytes: 1_234 }],
  droppedTools: {},
  resources: 0,
  resourceTemplates: 0,
  prompts: 0,
  failures: {},
  junkLines: 0,
  stopMs: 3,
  stop: { exitCode: 0, signal: undefined, rung: 'eof', left: 0, escaped: 0, escapedPids: [] },
};

test('text of a server stays on its line and controls no terminal', () => {
  const text = renderReport(report);
  expect(text).toContain('files (real\\u{1b}[31m 1.0)');
  expect(text).toContain('read\\nhostler: fine');
  expect(text.split('\n')).toHaveLength(8);
});

test.each([
  [{ left: 0, escaped: 0 }, 'exit 0, nothing left'],
  [{ left: 3, escaped: 0 }, 'exit 0, 3 processes of its group could not be killed'],
  [{ left: 0, escaped: 2 }, 'exit 0, 2 processes left its group and still run'],
])('a stop that ended with %j says so', (stop, args) => {
  const text = renderReport({ ...report, stop: { ...(report.stop as NonNullable<ProbeReport['stop']>), ...stop } });
  expect(text.endsWith(args)).toBe(true);
});

test('a long list is cut when it is shown to a person', () => {
  const tools = Array.from({ length: 100_000 }, (_, i) => ({ name: `t${i}`, bytes: 1 }));
  expect(renderReport({ ...report, tools })).toContain('and 99800 more');
});
