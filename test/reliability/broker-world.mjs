/**
 * Hosts that serve workers, as processes, with SQLite and WebSocket or with NATS, for drivers. Each process can be killed and
 * restarted, and workers connect through a proxy that can cut connections.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { connect as connectTcp, createServer } from 'node:net';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { newUserPair } from '../../dist/broker/nats/nats-client.js';
import { natsServerConfig } from '../../dist/broker/nats/server-config.js';
import { connect } from '../../dist/broker/worker/index.js';
import { freePort } from './ports.mjs';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
export const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A process that is killed and restarted. An unexpected end is recorded in `errors`. */
export class Mortal {
  deaths = 0;
  #isStopping = false;
  constructor(name, command, args, errors) {
    Object.assign(this, { name, command, args, errors });
  }
  start() {
    this.child = spawn(this.command, this.args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    this.child.stderr.on('data', (chunk) => (said = (said + chunk).slice(-2_000)));
    this.gone = new Promise((resolve) => this.child.once('exit', (code, signal) => resolve(code ?? signal)));
    this.gone.then((how) => {
      if (how !== 'SIGKILL' && how !== 0 && !this.#isStopping)
        this.errors.push(`${this.name} ended by itself (${how}): ${said}`);
    });
  }
  async kill() {
    this.deaths++;
    this.child.kill('SIGKILL');
    await this.gone;
  }
  async die() {
    await this.kill();
    this.start();
  }
  async pause(ms) {
    this.child.kill('SIGSTOP');
    await nap(ms);
    this.child.kill('SIGCONT');
  }
  async stop() {
    this.#isStopping = true;
    this.child.kill('SIGTERM');
    return this.gone;
  }
}

/** `workers`: roles by name. `config`: mcpServers and roles. `hosts`: their number, 1 without NATS. */
export async function openWorld({ folder, engine, workers, config, hosts = 1, limits = {}, level = 'error' }) {
  const isNats = engine === 'nats';
  const errors = [];
  const [port, proxyPort] = [await freePort(), await freePort()];
  const secrets = new Map();
  const keys = {};
  for (const [name, role] of Object.entries(workers)) {
    const { key, ...entry } = isNats ? await natsEntry() : plainEntry();
    secrets.set(name, key);
    keys[name] = { ...entry, worker: name, epoch: 'e', role };
  }
  const write = (name, value) => {
    const file = path.join(folder, name);
    writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
    return file;
  };
  const broker = { listen: { port }, limits };
  let nats;
  if (isNats) {
    const host = await newUserPair();
    const keyFile = write('host.key', host.seed);
    Object.assign(broker, { url: `nats://127.0.0.1:${port}`, keyFile, durability: 'process' });
    const plan = Object.entries(keys).map(([worker, { nkey, epoch }]) => ({ worker, epoch, publicKey: nkey }));
    const text = natsServerConfig({
      ...{ listen: `127.0.0.1:${port}`, storeDir: path.join(folder, 'nats'), hosts: [host.publicKey], workers: plan },
    });
    nats = new Mortal('nats-server', 'nats-server', ['-c', write('nats.conf', text)], errors);
    nats.start();
    await nap(500);
  }
  const file = write('hostler.json', { ...config, keys, broker, log: { level } });
  const dataDir = (at) => path.join(folder, `host-${at}`);
  const all = Array.from({ length: isNats ? hosts : 1 }, (_, at) => {
    const args = [main, 'up', '--config', file, '--port', '0', '--json', '--data-dir', dataDir(at)];
    return new Mortal(`host ${at}`, process.execPath, args, errors);
  });
  const proxy = openProxy(proxyPort, port);
  for (const host of all) host.start();
  const scheme = isNats ? 'nats' : 'ws';
  const address = (name) => `${scheme}://127.0.0.1:${proxyPort}/${isNats ? name : 'broker'}`;
  return {
    ...{ errors, hosts: all, nats, proxy, port, dataDir, keyOf: (name) => secrets.get(name) },
    connect: (name, options = {}) =>
      connect({ broker: address(name), key: secrets.get(name), connectMs: 30_000, ...options }),
    status: (at) =>
      JSON.parse(
        execFileSync(process.execPath, [main, 'status', '--json', '--data-dir', dataDir(at)], { encoding: 'utf8' }),
      ),
    /** Exit codes of the hosts, and of nats-server. */
    async close() {
      const exits = [];
      for (const host of all) exits.push(await host.stop());
      if (nats) exits.push(await nats.stop());
      proxy.close();
      return exits;
    },
  };
}

function plainEntry() {
  const key = `hk_${randomBytes(32).toString('base64url')}`;
  return { key, hash: `sha256:${createHash('sha256').update(key).digest('hex')}` };
}

async function natsEntry() {
  const { seed, publicKey } = await newUserPair();
  return { key: seed, nkey: publicKey };
}

/** The proxy through which workers connect. */
function openProxy(port, target) {
  const pairs = new Set();
  const server = createServer((near) => {
    const far = connectTcp(target, '127.0.0.1');
    const pair = { near, far };
    pairs.add(pair);
    const end = () => {
      near.destroy();
      far.destroy();
      pairs.delete(pair);
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
    near.pipe(far);
    far.pipe(near);
  }).listen(port, '127.0.0.1');
  const cut = ({ near, far }) => {
    near.destroy();
    far.destroy();
  };
  return {
    pairs: () => [...pairs],
    cut,
    close() {
      server.close();
      for (const pair of pairs) cut(pair);
    },
  };
}
