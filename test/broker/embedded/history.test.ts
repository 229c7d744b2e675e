/** The judge sees each fault, in a history written by hand and in one of a broker that has it. */
import { expect, test } from 'vitest';
import { BrokerCore } from '../../../src/broker/embedded/broker-core.js';
import { localHostLink } from '../../../src/broker/embedded/host-link.js';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import type { NewMail, Put } from '../../../src/broker/store-port.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { seededRandom } from '../../../src/kernel/random.js';
import { eventually } from '../../eventually.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';
import { keyOf, worker } from './core-bench.js';
import { type Happened, judge, spotless, type Verdict } from './history.js';
import { socketBench } from './socket-bench.js';
import { Traffic } from './traffic.js';

const m = { who: 'a', n: 1 };
const good: Happened[] = [
  { kind: 'sent', ...m },
  { kind: 'receipt', ...m },
  { kind: 'handed', ...m, link: 1, seq: 1 },
  { kind: 'link_over', link: 1 },
  { kind: 'handed', ...m, link: 2, seq: 1 },
  { kind: 'answered', ...m },
  { kind: 'acked', ...m, link: 2 },
  { kind: 'taken', ...m },
];

test('B14 a history without a fault has none, redelivery included', () => {
  expect(judge(good)).toEqual(spotless);
});

test.each<[keyof Verdict, Happened[]]>([
  ['lostReceipts', good.filter(({ kind }) => kind !== 'handed' && kind !== 'taken' && kind !== 'answered')],
  ['lostReplies', good.filter(({ kind }) => kind !== 'taken')],
  ['overlapping', good.filter(({ kind }) => kind !== 'link_over')],
  ['afterAck', [...good, { kind: 'handed', ...m, link: 2, seq: 1 }]],
  ['phantoms', good.filter(({ kind }) => kind !== 'sent' && kind !== 'acked').slice(0, 2)],
  [
    'reordered',
    [
      { kind: 'sent', who: 'a', n: 0 },
      { kind: 'sent', who: 'a', n: 2 },
      ...good.filter(({ kind }) => kind !== 'taken' && kind !== 'answered'),
      { kind: 'handed', who: 'a', n: 0, link: 2, seq: 2 },
    ],
  ],
])('B14 the judge sees %s', (fault, history) => {
  expect(judge(history)).toEqual({ ...spotless, [fault]: 1 });
});

/** Says of every 20th message that it is held, and holds it not. */
class LyingStore extends MemoryMailStore {
  #puts = 0;
  override async put(mail: NewMail): Promise<Put> {
    if (mail.kind === 'request' && ++this.#puts % 20 === 0) return { seq: 0, isNew: false };
    return super.put(mail);
  }
}

test('B14 a broker whose disk lies is found out; the same one with an honest disk is not', async () => {
  for (const store of [new LyingStore(), new MemoryMailStore()]) {
    const bench = await socketBench({ store });
    expect(bench.broker.core).toBeInstanceOf(BrokerCore);
    const names = ['alice', 'bob'];
    bench.broker.rekey(names.map((name) => worker(name)));
    const traffic = new Traffic({
      ...{ workers: names, random: seededRandom(1) },
      worker: (name) => openWorkerLink({ url: bench.url, key: keyOf(name), clock: systemClock }),
      host: () => localHostLink(bench.broker.core),
    });
    traffic.start();
    const isLying = store instanceof LyingStore;
    const enough = isLying ? 20 : 200;
    await eventually('traffic', () => traffic.taken >= enough || judge(traffic.history).lostReceipts >= 8);
    if (isLying) {
      traffic.abandon();
      await eventually('a receipt that was lost', () => judge(traffic.history).lostReceipts > 0);
    } else {
      await traffic.finish();
      expect(judge(traffic.history)).toEqual(spotless);
    }
    await bench.close();
  }
});
