/**
 * A host and a worker with secrets in every place that takes one, as processes. Everything that they print and every file that they leave
 * is searched. The log of calls holds results on purpose, and no other file does.
 */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { Running } from '../../cli/hostler-process.js';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, WorkerProcess } from './broker-place.js';

const word = (name: string) => `${name}-${randomBytes(12).toString('hex')}`;
const leakyServer = fileURLToPath(new URL('./leaky-server.pl', import.meta.url));
const place = new BrokerPlace();
const started: Running[] = [];
const track = <T extends Running>(running: T): T => {
  started.push(running);
  return running;
};
afterAll(async () => {
  for (const { child, closed } of started) {
    child.kill('SIGTERM');
    await closed;
  }
  await place.remove();
});

const trimmed = (file: string) => readFileSync(file, 'utf8').trim();
const filesIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));

test('AC-X5 planted secrets are in no output and in no file but those meant for them', {
  timeout: 120_000,
}, async () => {
  // --- the planted secrets
  const tls = place.certificate();
  const keyFiles = {
    worker: path.join(place.folder, 'worker.key'),
    seed: path.join(place.folder, 'seed.key'),
  };
  const roles = { all: { allow: ['leaky/*'] } };
  place.configure({ roles });
  await place.key('add', 'ann', '--worker', 'ann', '--role', 'all', '--key-file', keyFiles.worker);
  await place.key('add', 'pair', '--worker', 'pair', '--role', 'all', '--nats', '--key-file', keyFiles.seed);
  const secrets = {
    worker: trimmed(keyFiles.worker),
    seed: trimmed(keyFiles.seed),
    // One line of the secret is enough to recognise it.
    tls: trimmed(tls.key).split('\n')[1] as string,
    env: word('env'),
    ambient: word('ambient'),
    argument: word('argument'),
    result: word('result'),
    guess: `hk_${randomBytes(32).toString('base64url')}`,
  };
  expect(new Set(Object.values(secrets)).size).toBe(8);
  for (const secret of Object.values(secrets)) expect(secret.length).toBeGreaterThan(20);
  const { keys } = JSON.parse(readFileSync(place.config, 'utf8')) as { keys: object };
  place.configure({
    mcpServers: {
      leaky: {
        ...{ command: 'perl', args: [leakyServer], pins: 'off' },
        env: {
          SECRET: secrets.env,
          CONFIDED: `\${AMBIENT_SECRET}\n${secrets.worker}\n${secrets.seed}`,
          TOOLS: JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]),
        },
      },
    },
    ...{ roles, keys, log: { level: 'debug' }, broker: { listen: { port: 0, tls } } },
  });

  // --- the processes
  const env = { NODE_EXTRA_CA_CERTS: tls.cert, AMBIENT_SECRET: secrets.ambient };
  const said: Record<string, () => string> = {};
  const up = track(
    new Running(
      ['up', '--config', place.config, '--data-dir', place.dataDir, '--json', '--port=0', '--host=127.0.0.1'],
      env,
    ),
  );
  const ready = (await up.ready()) as BrokerReady;
  // --json prints the local key on purpose.
  said.up = () => up.stdout.replace(JSON.stringify(ready.key), '') + up.stderr;
  const workerEnv = {
    ...env,
    XDG_CACHE_HOME: path.join(place.folder, 'cache'),
    HOSTLER_DATA_DIR: path.join(place.folder, 'of-worker'),
  };
  const worker = track(new WorkerProcess(['--broker', ready.broker, '--key-file', keyFiles.worker], workerEnv));
  said.worker = () => worker.stderr;
  await worker.initialize();

  // --- the calls
  const call = (name: string, args: object) => worker.ask('tools/call', { name, arguments: args });
  const good = await call('leaky__work', { nonce: secrets.result, password: secrets.argument });
  expect(good).toMatchObject({ result: { content: [{ text: secrets.result }] } });
  const heard = [
    await call('leaky__work', { nonce: 'n', fails: true, password: secrets.argument }),
    await call('leaky__none', { nonce: secrets.argument }),
    await call('other__work', { nonce: secrets.argument }),
  ];
  said.errors = () => JSON.stringify(heard);
  const stranger = new WorkerProcess(['--broker', ready.broker], { ...workerEnv, HOSTLER_KEY: secrets.guess });
  await eventually('its refusal', () => stranger.stderr.includes('refused'));
  await stranger.end();
  said.stranger = () => stranger.stdout + stranger.stderr;
  const outputs: [string, Promise<{ stdout: string; stderr: string; code: number | null }>][] = [
    ['status', place.hostler('status', '--json')],
    ['why', place.hostler('why', 'leaky', '--json')],
    ['key list', place.key('list', '--json')],
    ['doctor', place.hostler('doctor', '--json', '--config', place.config)],
  ];
  for (const [name, ended] of outputs) {
    const { stdout, stderr } = await ended;
    said[name] = () => stdout + stderr;
  }
  const logs = place.follow('logs', 'leaky');
  await logs.closed;
  said.logs = () => logs.stdout + logs.stderr;
  expect(said.logs()).toContain('ran with');

  await worker.end();
  up.child.kill('SIGTERM');
  await up.closed;

  // --- the search
  const leaks = Object.entries(said).flatMap(([where, text]) =>
    Object.entries(secrets).flatMap(([what, secret]) =>
      text().includes(secret) ? [`${what} in what ${where} said`] : [],
    ),
  );
  expect(leaks).toEqual([]);
  expect(Object.entries(said).filter(([, text]) => ready.key && text().includes(ready.key))).toEqual([]);

  const files = filesIn(place.folder);
  const holding = (secret: string) =>
    files
      .filter((file) => readFileSync(file).includes(secret))
      .map((file) => [path.basename(file), statSync(file).mode & 0o077]);
  const found = Object.fromEntries(
    Object.entries({ ...secrets, gateway: ready.key }).map(([what, secret]) => [what, holding(secret)]),
  );
  console.log(`AC-X5 ${files.length} files; ${JSON.stringify(found)}`);
  // The log of calls may have dropped the result by now. No other file ever has it, and no other user can read it.
  for (const [file, others] of found.result ?? [])
    expect([/^calls\.db(?:-wal)?$/.test(String(file)), others]).toEqual([true, 0]);
  expect(found).toMatchObject({
    // The log stores no requests.
    argument: [],
    // The configuration itself has it, because it gives it to a server.
    worker: [
      ['hostler.json', expect.any(Number)],
      ['worker.key', 0],
    ],
    seed: [
      ['hostler.json', expect.any(Number)],
      ['seed.key', 0],
    ],
    tls: [['key.pem', expect.any(Number)]],
    env: [['hostler.json', expect.any(Number)]],
    ambient: [],
    guess: [],
    gateway: [['key', 0]],
  });
});
