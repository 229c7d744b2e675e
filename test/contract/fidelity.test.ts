/**
 * The wire layer relays messages byte for byte: cases that a client built on an SDK loses or refuses.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { CallOptions, Session } from '../../src/session/session.js';
import { memberBytes, memberText } from '../../src/wire/json-members.js';
import { vendorResult } from '../fixtures/servers/behaviour.mjs';
import {
  numbersText,
  rawCapabilities,
  rawServerInfo,
  rawTools,
  rowsResult,
  taskResult,
} from '../fixtures/servers/raw-texts.mjs';
import { type Bench, cells } from './cells.js';

const within = (): CallOptions => ({ deadlineAtMs: performance.now() + 20_000 });

describe.each(cells.filter(({ name }) => name.startsWith('raw')))('$name', (cell) => {
  let bench: Bench;
  let session: Session;
  beforeAll(async () => {
    bench = await cell.open();
    session = await bench.connect();
  });
  afterAll(() => bench.close());

  const call = async (tool: string, args = '{}') => (await session.callTool(tool, args, within())).bytes;
  const parsed = async (tool: string) => JSON.parse((await call(tool)).toString()) as Record<string, unknown>;

  test('vendor keys at the top of a result, in content blocks, and unknown content types', async () => {
    expect(await parsed('vendor')).toMatchObject(vendorResult);
  });

  test('vendor keys in tools, annotations, icons and execution', async () => {
    const { items } = await session.list('tools/list', within());
    expect(items.map(({ raw }) => raw.toString())).toEqual(rawTools.map((tool: unknown) => JSON.stringify(tool)));
  });

  test('a tool with an array as its output schema does not invalidate the list', async () => {
    const { items } = await session.list('tools/list', within());
    expect(items.find(({ key }) => key === 'rows')?.raw.toString()).toContain('"outputSchema":{"type":"array"');
  });

  test('array structuredContent', async () => {
    expect(await parsed('rows')).toMatchObject(rowsResult);
  });

  test('a result type of an extension', async () => {
    expect(await parsed('task')).toMatchObject(taskResult);
  });

  test('vendor capabilities and extras of the server’s identity', () => {
    expect(session.facts.capabilities.toString()).toBe(JSON.stringify(rawCapabilities));
    expect(session.facts.serverInfo?.toString()).toBe(JSON.stringify(rawServerInfo));
    expect(memberText(session.facts.raw, 'x-vendor-top')).toBe('[1]');
  });

  test('64-bit integers and every other number of a result are unchanged to the digit', async () => {
    const result = await call('numbers');
    expect(memberText(result, 'structuredContent')).toBe(numbersText);
    expect(memberText(result, 'x-vendor-size')).toBe('9007199254740993');
  });

  test('numbers and white space of the request are unchanged too', async () => {
    const args = `{ "numbers": ${numbersText}, "text" : "naïve \\u00e9 😀" }`;
    const received = JSON.parse((await call('received', args)).toString()) as { content: { text: string }[] };
    const line = Buffer.from(received.content[0]?.text ?? '');
    const params = memberBytes(line, 'params') as Buffer;
    expect(memberText(params, 'arguments')).toBe(args);
  });

  test('raw params relayed whole keep their own members and vendor metadata', async () => {
    const params = Buffer.from(
      `{"name":"received","arguments":{"n":18446744073709551615},"x-vendor":1.0,"_meta":{"vendor.example/a":9007199254740993}}`,
    );
    const answer = await session.request('tools/call', params, within());
    const text = (JSON.parse(answer.bytes.toString()) as { content: { text: string }[] }).content[0]?.text ?? '';
    expect(text).toContain('"x-vendor":1.0');
    expect(text).toContain('"vendor.example/a":9007199254740993');
    expect(text).toContain('{"n":18446744073709551615}');
  });
});

describe('string ids of a server are returned unchanged', () => {
  const [cell] = cells.filter(({ name }) => name === 'raw-stdio-legacy');
  test('in an answer to its question', async () => {
    const bench = await (cell as (typeof cells)[number]).open();
    const ids: string[] = [];
    const session = await bench.connect({
      handlers: {
        request: (request) => {
          ids.push(request.idText);
          request.respond('{"action":"decline"}');
        },
      },
    });
    const answer = await session.callTool('ask', '{}', within());
    expect(answer.bytes.toString()).toContain('decline');
    expect(ids).toEqual(['"ask-1"']);
    await bench.close();
  });
});
