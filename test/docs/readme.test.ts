/** The README shows the first screen exactly as `hostler up` prints it. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { firstScreen } from '../../src/cli/output/first-screen.js';
import { paint, plainScreen } from '../../src/cli/output/styled.js';
import { version } from '../../src/cli/version.js';
import type { StatusRow } from '../../src/host/status.js';

const page = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');

/** The servers shortly after the first start: the tools of two are known. */
const rows = (['everything', 'filesystem', 'memory', 'thinking'] as const).map(
  (name, i) =>
    ({
      ...{ name, state: i < 2 ? 'ready' : 'connecting', forMs: 0, tools: [17, 14][i] ?? 0, running: 0, queue: 0 },
      ...{ circuit: 'closed', changedTools: 0, escaped: 0 },
    }) as unknown as StatusRow,
);

test('the first screen, line by line', () => {
  const [, shown] = /^```text\n([\s\S]*?)\n```$/m.exec(page) ?? [];
  const folder = '/tmp/hostler-start-fpZpUm';
  const screen = firstScreen({
    ...{ version, url: 'http://127.0.0.1:8383/mcp', rows, screen: { ...plainScreen, width: 160 } },
    ...{ config: `${folder}/hostler.json`, dataDir: `${folder}/data` },
    key: { text: 'hk_...', isNew: true, file: `${folder}/data/key` },
  });
  expect(shown?.split('\n')).toEqual(screen.map((line) => paint(line, plainScreen)));
});
