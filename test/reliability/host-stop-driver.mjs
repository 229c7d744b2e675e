/**
 * Runs alone in a PID namespace: a host whose servers resist a stop in all known ways, closed at once, and before it a host with
 * obedient servers only. Prints one JSON line. Arguments: servers, seed (unused), folder.
 */
import fs, { readdirSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import Database from 'libsql';
import { processes } from './counts.mjs';

const [servers, folder] = [Number(process.argv[2]), process.argv[4]];
const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
const kinds = [{}, { IGNORE: 'eof' }, { IGNORE: 'eof term' }, { GRANDCHILD: '1' }, { STOPPED: '1' }];

const steps = [];
const rmSync = fs.rmSync;
fs.rmSync = (file, options) => {
  if (String(file).endsWith('.children')) steps.push('journal');
  rmSync(file, options);
};
syncBuiltinESMExports();
const { createHost } = await import('../../dist/index.js');

const others = () => processes().filter((pid) => pid !== process.pid && pid !== 1);
const environmentOf = (pid) => fs.readFileSync(`/proc/${pid}/environ`, 'utf8');

async function stopAll(name, count, kindOf) {
  const stateDir = path.join(folder, name);
  const problems = [];
  const entries = Array.from({ length: count }, (_, at) => {
    const env = { LEDGER: path.join(folder, 'ledger'), TOOLS: '[{"name":"count","inputSchema":{"type":"object"}}]' };
    return [`s${at}`, { command: 'perl', args: [script], env: { ...env, ...kindOf(at) } }];
  });
  const host = await createHost(
    { mcpServers: Object.fromEntries(entries) },
    { stateDir, onProblem: (error) => problems.push(String(error)) },
  );
  // At most ten servers start per second. A server that is not ready after five seconds is requested again.
  for (let at = 0; at < count; at += 10)
    await Promise.all(entries.slice(at, at + 10).map(([server]) => host.start(server)));
  const before = others();
  for (const pid of before) if (environmentOf(pid).includes('STOPPED=1')) process.kill(pid, 'SIGSTOP');
  const states = Object.fromEntries(host.status().map((row) => [row.name, row.state]));
  steps.length = 0;
  host.on('state', ({ to }) => to === 'stopped' && steps.push('stopped'));
  const beganMs = performance.now();
  await host.close();
  const tookMs = Math.round(performance.now() - beganMs);
  const database = new Database(path.join(stateDir, 'state.db'));
  const [{ known }] = database.prepare('SELECT count(*) AS known FROM listing_sets WHERE isComplete').all();
  const [{ integrity_check: integrity }] = database.prepare('PRAGMA integrity_check').all();
  database.close();
  return {
    servers: count,
    ready: Object.values(states).filter((state) => state === 'ready').length,
    processesBefore: before.length,
    tookMs,
    stoppedBeforeJournal: steps.indexOf('journal'),
    last: steps.at(-1),
    journalsLeft: readdirSync(stateDir).filter((file) => file.includes('.children')).length,
    toolsKept: known,
    integrity,
    processesLeft: others().length,
    problems,
  };
}

const obedient = await stopAll('obedient', Math.ceil(servers / 5), () => ({}));
const all = await stopAll('all', servers, (at) => kinds[at % kinds.length]);
console.log(JSON.stringify({ obedient, all }));
