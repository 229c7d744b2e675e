/**
 * Servers from npm behind one Hostler, together with the malformed fixtures, and clients from npm in front of it
 * (test/real/run.mjs). Needs a registry. docs/reports/real-servers.md has the figures.
 */
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

interface Outcome {
  readonly total: number;
  readonly notInstalled: readonly string[];
  readonly servers: Readonly<
    Record<
      string,
      {
        readonly direct: { readonly tools?: readonly string[]; readonly call?: string; readonly failed?: string };
        readonly hostler?: { readonly tools: number; readonly missing: readonly string[]; readonly call: string };
      }
    >
  >;
  readonly clients: Readonly<
    Record<string, { readonly tools?: number; readonly called?: boolean; readonly failed?: string }>
  >;
}

/** The table of clients for the report: a client that did not run has the reason. */
const clientRows = ({ clients, notInstalled }: Outcome): string[] =>
  Object.entries(clients).map(([name, { tools, called, failed }]) => {
    const why = notInstalled.find((text) => text.startsWith(`${name}@`)) ?? failed;
    return `| ${name} | ${why === undefined ? tools : `not run: ${why}`} | ${called ? 'yes' : 'no'} |`;
  });

test('30 real servers are listed and called as they are directly, by every client', { timeout: 1_200_000 }, () => {
  const script = fileURLToPath(new URL('../real/run.mjs', import.meta.url));
  const output = execFileSync(process.execPath, [script], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const outcome = JSON.parse(output.trim().split('\n').at(-1) ?? '') as Outcome;
  console.log(JSON.stringify(outcome, null, 1));
  console.log(clientRows(outcome).join('\n'));
  const working = Object.entries(outcome.servers).filter(([, { hostler }]) => hostler !== undefined);
  expect(working.length).toBeGreaterThanOrEqual(30);
  const differing = working.filter(
    ([, { direct, hostler }]) => hostler?.missing.length !== 0 || hostler.call !== direct.call,
  );
  expect(differing).toEqual([]);
  // A client whose packages the registry does not have cannot run; the output names it.
  const isInstalled = (name: string) => !outcome.notInstalled.some((text) => text.startsWith(`${name}@`));
  for (const [name, client] of Object.entries(outcome.clients).filter(([name]) => isInstalled(name)))
    expect([name, client]).toEqual([name, { tools: outcome.total, called: true }]);
});
