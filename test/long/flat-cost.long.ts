/**
 * A call must not cost more CPU with more servers, tools and idle clients, and a changed list must be cheap even if many keys listen.
 * The figures are written to docs/reports/gateway.md with `SAVE=1`.
 */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { GatewayRouter } from '../../src/gateway/routing/router.js';
import { systemClock } from '../../src/kernel/clock.js';
import { FakeSession, fakeClient, principalOf } from '../fakes/fake-exchange.js';
import { passThrough } from '../fakes/fake-router.js';
import { FakeUpstreams } from '../fakes/fake-upstreams.js';

const driver = fileURLToPath(new URL('../reliability/flat-cost-driver.mjs', import.meta.url));
const report = new URL('../../docs/reports/gateway.md', import.meta.url);
const ratioMax = 1.2;
const changeCpuMsMax = 50;
const turnMsMax = 10;
const keys = 1_000;
const toolCount = 1_000;

interface Figures {
  readonly cells: readonly {
    readonly servers: number;
    readonly toolsEach: number;
    readonly clients: number;
    readonly cpuUs: number;
  }[];
  readonly change: { readonly cpuMs: number; readonly stallMs: number };
}

test('a call costs the same with any number of other servers and clients, and a changed list costs at most 50 ms for 1,000 keys', async () => {
  const load = loadavg()[0]?.toFixed(1);
  const { stdout } = await promisify(execFile)(process.execPath, [driver]);
  const { cells, change } = JSON.parse(stdout) as Figures;
  const base = cells[0]?.cpuUs as number;
  const rows = cells.map(({ servers, toolsEach, clients, cpuUs }) => ({
    row: `| ${servers} | ${servers * toolsEach} | ${clients} | ${cpuUs.toFixed(1)} | ${(cpuUs / base).toFixed(2)} |`,
    ratio: cpuUs / base,
  }));
  const text = `# Flat cost, measured

${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${cpus().length} cores, load ${load} before the run.

CPU of the process of \`hostler up\` per call, 16 calls at once to one server through \`/mcp\`, with key, role, budget and metrics,
after 8 s of warm-up; median of rounds of new processes. Idle clients have a key each and listen for changes of lists.

| servers | tools | clients | us per call | relative to the first row |
| ---: | ---: | ---: | ---: | ---: |
${rows.map(({ row }) => row).join('\n')}

One of 1,000 tools of a server changes while 1,000 keys listen: ${change.cpuMs.toFixed(0)} ms of CPU from the call that changes it to the
last notification, reading the list again and storing it included; the event loop stood still for at most ${change.stallMs.toFixed(1)} ms.
`;
  console.log(text);
  if (process.env.SAVE === '1') writeFileSync(report, text);
  for (const { row, ratio } of rows) expect(ratio, row).toBeLessThanOrEqual(ratioMax);
  expect(change.cpuMs).toBeLessThanOrEqual(changeCpuMsMax);
});

const cpuMs = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
};
const median = (all: readonly number[]): number => [...all].sort((a, b) => a - b)[all.length >> 1] as number;

test.each([
  ['of one role', () => 'role'],
  ['with different rules', (i: number) => `role${i}`],
])('1,000 keys %s are notified of a change of 1,000 tools in turns of at most 10 ms of CPU', async (which, roleOf) => {
  const tools = Array.from({ length: toolCount }, (_, i) =>
    JSON.stringify({ name: `tool${i}`, description: 'Answers with its input.', inputSchema: { type: 'object' } }),
  );
  const upstreams = new FakeUpstreams({ s: { tools } });
  upstreams.accessKeyOf = ({ role }) => `${role}`;
  const serverInfo = { name: 'hostler', version: '1.0.0' };
  const router = new GatewayRouter({ upstreams, bridge: passThrough, clock: systemClock, serverInfo });
  const sessions = Array.from({ length: keys }, (_, i) => {
    const session = new FakeSession(fakeClient({ id: `client${i}`, principal: principalOf(`key${i}`, roleOf(i)) }));
    router.opened(session);
    return session;
  });
  const rounds: { cpuMs: number; longestTurnMs: number }[] = [];
  for (let round = 0; round < 30; round++) {
    const heard = (round + 1) * keys;
    upstreams.set('s', { tools: [...tools.slice(1), `new${round}`] });
    const startedMs = cpuMs();
    let lastMs = startedMs;
    let longestTurnMs = 0;
    // The changes of 25 ms are gathered first.
    await sleep(20);
    while (sessions.reduce((sum, session) => sum + session.heard.length, 0) < heard) {
      await nextTurn();
      const nowMs = cpuMs();
      longestTurnMs = Math.max(longestTurnMs, nowMs - lastMs);
      lastMs = nowMs;
    }
    rounds.push({ cpuMs: cpuMs() - startedMs, longestTurnMs });
  }
  router.close();
  // The first rounds run code that is not compiled yet.
  const settled = rounds.slice(10);
  const figures = {
    cpuMs: median(settled.map((each) => each.cpuMs)),
    longestTurnMs: median(settled.map((each) => each.longestTurnMs)),
  };
  console.log(`flat-cost ${which}`, JSON.stringify(figures));
  expect(figures.cpuMs).toBeLessThanOrEqual(changeCpuMsMax);
  expect(figures.longestTurnMs).toBeLessThanOrEqual(turnMsMax);
});
