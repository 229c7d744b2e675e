/**
 * A broker, a host and a worker with secrets in every place that takes one, as processes. Everything that they say and every
 * file that they leave is searched. Mailboxes and the journal hold arguments and results on purpose, and nothing else does.
 */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { Running } from '../../cli/hostler-process.js';
import { eventually } from '../../eventually.js';
import { isLongTier } from '../../tier.js';
import { BrokerPlace, WorkerProcess } from './broker-place.js';

const word = (name: string) => `${name}-${randomBytes(12).toString('hex')}`;
const leakyServer = fileURLToPath(new URL('./leaky-server.pl', import.meta.url));
const broker = new BrokerPlace();
const host = new BrokerPlace();
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
  await host.remove();
  await broker.remove();
});

const trimmed = (file: string) => readFileSync(file, 'utf8').trim();
const filesIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));

test('AC-X5 planted secrets are in no output and in no file but those meant for them', {
  timeout: 120_000,
}, async () => {
  // --- what is planted
  const tls = broker.certificate();
  const keyFiles = {
    worker: path.join(broker.folder, 'worker.key'),
    host: path.join(broker.folder, 'host.key'),
    seed: path.join(broker.folder, 'seed.key'),
  };
  broker.configure({ broker: { listen: { port: 0, tls } }, roles: { all: { allow: ['leaky/*'] } } });
  await broker.key('add', 'ann', '--worker', '--role', 'all', '--key-file', keyFiles.worker);
  await broker.key('add', 'here', '--host', '--key-file', keyFiles.host);
  await broker.key('add', 'pair', '--worker', '--role', 'all', '--nats', '--key-file', keyFiles.seed);
  const secrets = {
    worker: trimmed(keyFiles.worker),
    host: trimmed(keyFiles.host),
    seed: trimmed(keyFiles.seed),
    // One line of it is enough to know it by.
    tls: trimmed(tls.key).split('\n')[1] as string,
    env: word('env'),
    ambient: word('ambient'),
    argument: word('argument'),
    result: word('result'),
    letter: word('letter'),
    guess: `hk_${randomBytes(32).toString('base64url')}`,
  };
  expect(new Set(Object.values(secrets)).size).toBe(10);
  for (const secret of Object.values(secrets)) expect(secret.length).toBeGreaterThan(20);

  // --- what runs
  const env = { NODE_EXTRA_CA_CERTS: tls.cert, AMBIENT_SECRET: secrets.ambient };
  const said: Record<string, () => string> = {};
  const alone = broker.follow('broker', '--config', broker.config, '--json');
  const { url } = await alone.ready();
  said.broker = () => alone.stdout + alone.stderr;

  // A letter that nobody can deliver, before there is a host.
  host.configure({
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
    roles: { all: { allow: ['leaky/*'] } },
    log: { level: 'debug' },
    broker: { url, keyFile: keyFiles.host },
  });
  // Five deliveries take 15 s.
  if (isLongTier) await deadLetter(url, tls.cert, secrets);
  const up = track(
    new Running(
      ['up', '--config', host.config, '--data-dir', host.dataDir, '--json', '--port=0', '--host=127.0.0.1'],
      env,
    ),
  );
  const ready = await up.ready();
  // It is what `--json` is asked for; nothing else of it is said.
  said.up = () => up.stdout.replace(JSON.stringify(ready.key), '') + up.stderr;
  const worker = track(new WorkerProcess(['--broker', url, '--key-file', keyFiles.worker], env));
  said.worker = () => worker.stderr;
  await worker.initialize();

  // --- what happens
  const call = (name: string, args: object) => worker.ask('tools/call', { name, arguments: args });
  const good = await call('leaky__work', { nonce: secrets.result, password: secrets.argument });
  expect(good).toMatchObject({ result: { content: [{ text: secrets.result }] } });
  const heard = [
    await call('leaky__work', { nonce: 'n', fails: true, password: secrets.argument }),
    await call('leaky__none', { nonce: secrets.argument }),
    await call('other__work', { nonce: secrets.argument }),
  ];
  said.errors = () => JSON.stringify(heard);
  const stranger = new WorkerProcess(['--broker', url], { NODE_EXTRA_CA_CERTS: tls.cert, HOSTLER_KEY: secrets.guess });
  await stranger.closed;
  said.stranger = () => stranger.stdout + stranger.stderr;
  const outputs: [string, Promise<{ stdout: string; stderr: string; code: number | null }>][] = [
    ['status', host.hostler('status', '--json')],
    ['why', host.hostler('why', 'leaky', '--json')],
    ['letters', broker.hostler('dead-letters', '--json')],
    ['letters of the host', host.hostler('dead-letters', '--json')],
    ['key list', broker.key('list', '--json')],
    ['doctor', host.hostler('doctor', '--json', '--config', host.config)],
  ];
  for (const [name, ended] of outputs) {
    const { stdout, stderr } = await ended;
    said[name] = () => stdout + stderr;
  }
  if (isLongTier) expect(said.letters?.()).toContain('"seq"');
  const logs = host.follow('logs', 'leaky');
  await logs.closed;
  said.logs = () => logs.stdout + logs.stderr;
  expect(said.logs()).toContain('ran with');

  await worker.end();
  up.child.kill('SIGTERM');
  await up.closed;
  alone.child.kill('SIGTERM');
  await alone.closed;

  // --- what is found
  const leaks = Object.entries(said).flatMap(([where, text]) =>
    Object.entries(secrets).flatMap(([what, secret]) =>
      text().includes(secret) ? [`${what} in what ${where} said`] : [],
    ),
  );
  expect(leaks).toEqual([]);
  expect(Object.entries(said).filter(([, text]) => ready.key && text().includes(ready.key))).toEqual([]);

  const files = [...filesIn(broker.folder), ...filesIn(host.folder)];
  const named = (file: string) => `${file.startsWith(host.folder) ? 'host' : 'broker'}:${path.basename(file)}`;
  const holding = (secret: string) =>
    files
      .filter((file) => readFileSync(file).includes(secret))
      .map((file) => [named(file), statSync(file).mode & 0o077]);
  const found = Object.fromEntries(
    Object.entries({ ...secrets, gateway: ready.key }).map(([what, secret]) => [what, holding(secret)]),
  );
  console.log(`AC-X5 ${files.length} files; ${JSON.stringify(found)}`);
  // Mail and journal may have forgotten them by now; nobody else ever has them, and nobody else can read them.
  const isMail = ([file]: (string | number)[]) => /^(?:broker|host):broker\.db(?:-wal)?$/.test(String(file));
  for (const what of ['argument', 'result', 'letter']) {
    expect(found[what]?.every(isMail)).toBe(true);
    for (const [, othersMay] of found[what] ?? []) expect(othersMay).toBe(0);
  }
  expect(found).toMatchObject({
    worker: [
      ['broker:worker.key', 0],
      // As it was confided to a server, in the configuration itself.
      ['host:hostler.json', expect.any(Number)],
    ],
    host: [['broker:host.key', 0]],
    seed: [
      ['broker:seed.key', 0],
      ['host:hostler.json', expect.any(Number)],
    ],
    tls: [['broker:key.pem', expect.any(Number)]],
    env: [['host:hostler.json', expect.any(Number)]],
    ambient: [],
    guess: [],
    gateway: [['host:key', 0]],
  });
});

/** A request that its host gives back until it is a dead letter. */
async function deadLetter(url: string, ca: string, secrets: Record<string, string>): Promise<void> {
  const { WebSocket } = await import('ws');
  type Frame = Record<string, unknown>;
  const open = async (key: string | undefined, onFrame: (frame: Frame, say: (frame: object) => void) => void) => {
    const socket = new WebSocket(url, { ca: readFileSync(ca) });
    const say = (frame: object) => socket.send(JSON.stringify(frame));
    const frames: Frame[] = [];
    socket.on('message', (data: Buffer) => {
      const frame = JSON.parse(data.toString()) as Frame;
      frames.push(frame);
      onFrame(frame, say);
    });
    await eventually('an open socket', () => socket.readyState === WebSocket.OPEN);
    say({ kind: 'hello', v: 1, key });
    say({ kind: 'subscribe' });
    await eventually('a subscription', () => frames.some(({ kind }) => kind === 'subscribed'));
    return { socket, say, frames };
  };
  let deliveries = 0;
  const raw = await open(secrets.host, ({ kind, seq, lease }, say) => {
    if (kind !== 'message') return;
    deliveries++;
    say({ kind: 'release', seq, lease, delayMs: 0, reason: 'not today' });
  });
  const ann = await open(secrets.worker, () => {});
  const body = {
    v: 1,
    op: 'call',
    callKey: 'letter',
    deadlineMs: 60_000,
    tool: 'work',
    arguments: { a: secrets.letter },
  };
  ann.say({ kind: 'deliver', id: 'letter', type: 'request', to: 'host', ttlMs: 60_000, body });
  await eventually('five deliveries', () => deliveries === 5, 60_000);
  raw.socket.terminate();
  ann.socket.terminate();
}
