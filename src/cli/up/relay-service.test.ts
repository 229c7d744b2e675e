import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { RelayService } from './relay-service.js';

/** A host that nothing uses, and the reasons for which it ended. */
async function opened(isRelayed: boolean) {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-relays-'));
  const clock = new FakeClock();
  const ended: string[] = [];
  const service = new RelayService({
    options: { config: path.join(dataDir, 'hostler.json'), dataDir, isRelayed },
    ...{ clock, host: { status: () => [] }, gateway: { httpUsage: { open: 0, sessions: 0, answers: 0 } } },
    ...{ workers: () => undefined, idleMs: () => 30_000, isEnding: () => false },
    end: (reason: string) => ended.push(reason),
    ...{ reload: () => {}, log: () => {}, onProblem: () => {} },
  } as unknown as ConstructorParameters<typeof RelayService>[0]);
  await service.open();
  onTestFinished(async () => {
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });
  return { clock, ended, service };
}

test('R4 a host that a relay started ends by idleness; one that plain `up` started never does', async () => {
  const [relayed, plain] = [await opened(true), await opened(false)];
  for (const { clock } of [relayed, plain]) clock.advance(24 * 3_600_000);
  expect([relayed.ended, plain.ended]).toEqual([['idle'], []]);
});
