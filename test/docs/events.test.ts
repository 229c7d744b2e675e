/**
 * The tables of docs/events.md list all kinds of events, all fields of the record of a call, and all fields of a status row.
 */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { hostEventKinds } from '../../src/host/host-events.js';

const text = readFileSync(new URL('../../docs/events.md', import.meta.url), 'utf8');
const table = (title: string) => {
  const lines = text.slice(text.indexOf(`| ${title} `)).split('\n');
  const rows = lines.slice(
    2,
    lines.findIndex((line) => !line.startsWith('|')),
  );
  return rows.map((line) => /^\| `(\w+)`/.exec(line)?.[1]);
};

test('every kind of event has one row, in the order of the stream’s own list', () => {
  expect(table('kind')).toEqual(hostEventKinds);
});

test('every kind of broker event has one row', () => {
  const source = readFileSync(new URL('../../src/broker/broker-events.ts', import.meta.url), 'utf8');
  const [union = ''] = /export type BrokerEvent =[\s\S]*?;\n\n/.exec(source) ?? [];
  expect(table('broker event')).toEqual([...union.matchAll(/kind: '(\w+)'/g)].map(([, kind]) => kind));
});

test('a status row is described field by field, in its order', async () => {
  const host = await createHost({ mcpServers: { resting: { command: 'node' } } });
  try {
    expect(table('status field')).toEqual(Object.keys(host.status()[0] ?? {}));
  } finally {
    await host.close();
  }
});

test('the record of a call is described field by field', () => {
  expect(table('field')).toEqual([
    'requestId',
    'principal',
    'argumentsHash',
    'outcome',
    'execution',
    'durationMs',
    'attempts',
    'fromCache',
    'run',
  ]);
});
