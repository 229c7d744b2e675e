/** A host is killed again and again while raw workers send. The history of each call is written down and checked. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';
import { newSession, RawWorker } from './raw-worker.js';

const kills = Number(process.env.HOST_KILLS ?? 3);
const names = ['ann', 'bob', 'cid'];
const keys = new Map(names.map((name) => [name, newKey()]));
const place = new BrokerPlace();
afterAll(() => place.remove());

interface History {
  receipts: number;
  readonly outcomes: Set<string>;
  storeId: string;
}
const histories = new Map<string, History>();
const refusals: string[] = [];
let executed: string[] = [];

const config = (port: number) => ({
  mcpServers: { books: place.ledgerEntry('books') },
  roles: { all: { allow: ['books/*'] } },
  keys: Object.fromEntries([...keys].map(([name, key]) => [name, { hash: hashOf(key), worker: name, role: 'all' }])),
  broker: { listen: { port } },
});

/** A worker by the rules: it sends calls without a receipt again, asks for those with one, and acknowledges replies again. */
async function workUntil(name: string, url: string, isOver: () => boolean): Promise<void> {
  const session = newSession();
  const open = new Set<string>();
  const acked: string[] = [];
  let number = 0;
  while (!isOver() || open.size > 0) {
    const raw = await RawWorker.joined(url, keys.get(name) as string, session).catch(() => undefined);
    if (!raw) continue;
    const storeId = String((await raw.heard('welcome')).storeId);
    const send = (key: string) => {
      const { receipts, storeId: first } = histories.get(key) as History;
      const sentBefore = first === '' ? undefined : { storeId: first, hasReceipt: receipts > 0 };
      raw.call(key, { deadlineMs: 120_000, sentBefore });
      if (first === '') (histories.get(key) as History).storeId = storeId;
    };
    const hasReceipt = (key: string) => (histories.get(key) as History).receipts > 0;
    for (const key of open) if (!hasReceipt(key)) send(key);
    if (acked.length > 0) raw.say({ op: 'ack', keys: acked.slice(-256) });
    let askAtMs = 0;
    while (raw.closed === undefined && (!isOver() || open.size > 0)) {
      for (const message of raw.messages.splice(0)) {
        const history = histories.get(String(message.key));
        if (message.op === 'receipt' && history) history.receipts++;
        if (message.op === 'asked') for (const key of message.resend as string[]) send(key);
        // A refusal is not final, because another sending of the call may have left a row.
        if (message.op === 'refused') refusals.push(JSON.stringify(message.error));
        if (message.op !== 'reply' || !history) continue;
        history.outcomes.add(JSON.stringify(message.body));
        open.delete(String(message.key));
        acked.push(String(message.key));
        raw.say({ op: 'ack', keys: [message.key] });
      }
      while (!isOver() && open.size < 8) {
        const key = `${name}-${number++}`;
        histories.set(key, { receipts: 0, outcomes: new Set(), storeId: '' });
        open.add(key);
        send(key);
      }
      if (performance.now() > askAtMs) {
        askAtMs = performance.now() + 1_000;
        const [received, others] = [[...open].filter(hasReceipt), [...open].filter((key) => !hasReceipt(key))];
        if (received.length > 0) raw.say({ op: 'ask', id: `q${number++}`, keys: received });
        for (const key of others) send(key);
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    raw.end();
  }
}

beforeAll(async () => {
  place.configure(config(0));
  let up = place.up();
  const { broker } = (await up.ready()) as BrokerReady;
  place.configure(config(Number(new URL(broker).port)));
  let isOver = false;
  const workers = names.map((name) => workUntil(name, broker, () => isOver));
  for (let round = 0; round < kills; round++) {
    const before = place.ran('books').length;
    await eventually(`some calls after ${round} kills`, () => place.ran('books').length > before + 60, 60_000).catch(
      (error) => {
        console.log(up.stderr.slice(-2_000), refusals.slice(-3));
        throw error;
      },
    );
    up.child.kill('SIGKILL');
    await up.closed;
    up = place.up();
    await up.ready();
  }
  isOver = true;
  await Promise.all(workers);
  executed = place.ran('books');
  const uncertain = [...histories.values()].filter(({ outcomes }) => [...outcomes].join().includes('uncertain')).length;
  console.log(
    `B2 ${kills} kills: ${histories.size} calls, ${executed.length} runs, ${uncertain} uncertain, ${refusals.length} refused`,
  );
}, 1_200_000);

test('B2 a killed host loses no call that it gave a receipt for, and none runs twice', () => {
  expect(histories.size).toBeGreaterThan(kills * 40);
  const lost = [...histories].filter(([, { receipts, outcomes }]) => receipts > 0 && outcomes.size === 0);
  expect(lost).toEqual([]);
  expect(new Set(executed).size).toBe(executed.length);
});

test('B14 each call has exactly one outcome, is never refused, and has a result only if it ran', () => {
  expect([...new Set(refusals)]).toEqual([]);
  const ran = new Set(executed);
  const wrong = [...histories].filter(([key, { outcomes }]) => {
    const [outcome = ''] = outcomes;
    return outcomes.size !== 1 || (outcome.includes('"result"') && !ran.has(key));
  });
  expect(wrong).toEqual([]);
});
