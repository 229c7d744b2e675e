/**
 * A host under load that its parent kills. Arguments: its number, folder. Prints `open` when it has ended the processes of the
 * previous host. Records each outcome in the tick in which its caller gets it. Closes when its input ends.
 */
import { appendFileSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { createHost } from '../../dist/index.js';

const [number, folder] = [process.argv[2], process.argv[3]];
const callersPerServer = 4;
const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
const outcomes = openSync(path.join(folder, 'outcomes'), 'a');
const ledgers = path.join(folder, 'ledgers');

const kinds = {
  plain: {},
  wrapped: { GRANDCHILD: '1' },
  deaf: { IGNORE: 'eof' },
  stubborn: { IGNORE: 'eof term', GRANDCHILD: '1' },
  boxed: { IGNORE: 'eof term', GRANDCHILD: '1' },
  'boxed-plain': {},
};

const onProblem = (error) => appendFileSync(path.join(folder, 'problems'), `${error}\n`);
const host = await createHost({}, { stateDir: path.join(folder, 'state'), onProblem });
writeSync(1, 'open\n');

let isOver = false;
let calls = 0;

async function call(name) {
  const nonce = `${name}-${number}-${calls++}`;
  const settle = (outcome) => writeSync(outcomes, `${outcome} ${nonce}\n`);
  try {
    const { bytes } = await host.call(name, 'count', { nonce }, { deadlineMs: 30_000 });
    settle(bytes.includes(`"${nonce}"`) ? 'answered' : 'wrong');
  } catch (error) {
    settle(error.details?.execution === 'not_executed' ? 'not_executed' : 'uncertain');
  }
}

async function serve([name, env]) {
  const box = name.startsWith('boxed') ? { sandbox: 'standard', writablePaths: [ledgers] } : {};
  const entry = { command: 'perl', args: [script], env: { ...env, LEDGER: path.join(ledgers, name) }, ...box };
  await host.spawn({ name, ...entry });
  const caller = async () => {
    while (!isOver) await call(name);
  };
  await Promise.all(Array.from({ length: callersPerServer }, caller));
}

process.stdin.resume().once('end', () => {
  isOver = true;
});
await Promise.all(Object.entries(kinds).map(serve));
await host.close();
