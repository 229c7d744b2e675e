/** The broker beyond this machine: over TLS with a certificate that the worker trusts, or not at all. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Running } from '../../cli/hostler-process.js';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey, WorkerProcess } from './broker-place.js';

const places: BrokerPlace[] = [];
const newPlace = () => {
  const made = new BrokerPlace();
  places.push(made);
  return made;
};
const place = newPlace();
const keys = { alice: newKey(), host: newKey() };
const table = {
  alice: { hash: hashOf(keys.alice), mailbox: 'alice', role: 'writer' },
  here: { hash: hashOf(keys.host), mailbox: 'host' },
};
const servers = { mcpServers: { books: place.ledgerEntry('books') }, roles: { writer: { allow: ['books/*'] } } };
afterAll(async () => {
  for (const each of places) await each.remove();
});

describe('wss', () => {
  const tls = place.certificate();
  const keyFile = place.write('alice.key', keys.alice);
  let ready: BrokerReady;
  beforeAll(async () => {
    place.configure({ ...servers, keys: table, broker: { listen: { port: 0, tls } } });
    ready = await place.upWithBroker();
  });

  test('a worker that trusts the certificate is served', async () => {
    expect(ready.broker).toMatch(/^wss:/);
    const worker = new WorkerProcess(['--broker', ready.broker, '--key-file', keyFile], {
      NODE_EXTRA_CA_CERTS: tls.cert,
    });
    await worker.initialize();
    const answer = await worker.ask('tools/call', { name: 'books__work', arguments: { nonce: 'over-tls' } });
    expect(answer).toMatchObject({ result: { content: [{ text: 'over-tls' }] } });
    expect(place.ran('books')).toEqual(['over-tls']);
    await worker.end();
  });

  test('a worker that does not says why, sends no key, and gets nothing', async () => {
    const worker = new WorkerProcess(['--broker', ready.broker, '--key-file', keyFile]);
    const said = await eventually('what it says', () => /the (?:broker|certificate).*\n/.exec(worker.stderr)?.[0]);
    await worker.initialize();
    const listed = await worker.ask('tools/list', {});
    const called = await worker.ask('tools/call', { name: 'books__work', arguments: { nonce: 'untrusted' } });
    expect(listed.result ?? listed.error).not.toMatchObject({ tools: [{}] });
    expect(called.error ?? called.result).toBeDefined();
    expect(place.ran('books')).not.toContain('untrusted');
    await worker.end();
    console.log(`without the certificate: ${said.trim()}`);
    expect(said).toContain(`the certificate of the broker at ${new URL(ready.broker).host} is not trusted`);
    expect(worker.stderr).not.toContain(keys.alice);
  });

  test('a host elsewhere is refused and let in by the same rule', async () => {
    const broker = newPlace();
    broker.configure({ keys: table, broker: { listen: { port: 0, tls } } });
    const alone = broker.follow('broker', '--config', broker.config, '--json');
    const { url } = await alone.ready();
    const host = newPlace();
    host.configure({
      ...{ mcpServers: { books: host.ledgerEntry('books') }, roles: servers.roles },
      broker: { url, keyFile: host.write('host.key', keys.host) },
    });
    const blind = host.up();
    await eventually(
      'what it says',
      () => /broker: not connected: the certificate .* is not trusted/.exec(blind.stderr)?.[0],
    );
    blind.child.kill('SIGTERM');
    await blind.closed;
    const args = ['up', '--config', host.config, '--data-dir', host.dataDir, '--json', '--port=0'];
    const seeing = new Running(args, { NODE_EXTRA_CA_CERTS: tls.cert });
    const worker = new WorkerProcess(['--broker', url, '--key-file', keyFile], { NODE_EXTRA_CA_CERTS: tls.cert });
    await worker.initialize();
    await worker.ask('tools/call', { name: 'books__work', arguments: { nonce: 'three-processes' } });
    expect(host.ran('books')).toEqual(['three-processes']);
    await worker.end();
    seeing.child.kill('SIGTERM');
    expect((await seeing.closed).code).toBe(0);
  });
});

describe('an address that others reach, without TLS', () => {
  const open = { keys: table, broker: { listen: { host: '0.0.0.0', port: 0 } } };

  test.each([
    ['up', open],
    ['broker', open],
  ])('hostler %s refuses to begin, and says what to do', async (command, config) => {
    const other = newPlace();
    other.configure(config);
    const port = command === 'up' ? ['--port=0'] : [];
    const { code, stdout, stderr } = await other.hostler(command, '--config', other.config, '--json', ...port);
    expect([code, stdout]).toEqual([expect.any(Number), '']);
    expect(code).not.toBe(0);
    expect(stderr).toContain("broker.listen: '0.0.0.0' can be reached by others and has no TLS");
    expect(stderr).toContain('give a certificate and its key');
  });

  test('a worker does not send its key in the clear to another machine', async () => {
    const keyFile = place.write('clear.key', keys.alice);
    const worker = new WorkerProcess(['--broker', 'ws://192.0.2.1:8384/broker', '--key-file', keyFile]);
    const { code, stderr } = await worker.closed;
    expect(code).not.toBe(0);
    expect(stderr).toContain('would send the key in the clear');
    expect(stderr).toContain('use wss://');
    expect(stderr).not.toContain(keys.alice);
  });
});
