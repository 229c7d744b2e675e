/**
 * All combinations of a transport and a server for the session suite. Each cell is one column of the suite.
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseServerSpec } from '../../src/config/server-spec.js';
import { type ConnectOptions, Connector } from '../../src/session/connector.js';
import type { Session } from '../../src/session/session.js';
import { createMemoryLink, type MemoryServerEnd } from '../../src/transports/memory/memory-channel.js';
import type { Era } from '../../src/wire/channel.js';
import {
  type Abilities,
  type Fixture,
  type HttpFixture,
  httpFixtures,
  type RunningFixture,
  type StdioFixture,
  stdioFixtures,
} from '../fixtures/fixture-servers.js';
import { connectSdk1, connectSdk2, connectSdk2Modern } from '../fixtures/servers/memory.mjs';
import { createSdk1Server } from '../fixtures/servers/sdk1.mjs';

const client = { name: 'hostler-tests', version: '0', capabilities: { elicitation: {} } };

/** A running server, and how to connect to it. */
export interface Bench {
  connect(options?: ConnectOptions): Promise<Session>;
  /** Lines that the server has written to its ledger. */
  ledger(): string[];
  readonly running: RunningFixture | undefined;
  close(): Promise<void>;
}

export interface Cell {
  readonly name: string;
  readonly transport: 'stdio' | 'streamable-http' | 'http-sse' | 'memory' | 'attached';
  readonly era: Era;
  readonly version: string;
  readonly abilities: Abilities;
  open(): Promise<Bench>;
}

/** Makes a folder for the ledger and the state of one bench. */
function scratch() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-contract-'));
  const ledgerFile = path.join(folder, 'ledger');
  return {
    ledgerFile,
    stateDir: path.join(folder, 'state'),
    ledger: () => (existsSync(ledgerFile) ? readFileSync(ledgerFile, 'utf8').split('\n').filter(Boolean) : []),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

const describeCell = ({ name, era, version, abilities }: Fixture) => ({ name, era, version, abilities });

const stdioCell = (fixture: StdioFixture): Cell => ({
  ...describeCell(fixture),
  transport: 'stdio',
  open: async () => {
    const { ledgerFile, stateDir, ledger, remove } = scratch();
    const connector = new Connector({ client, stateDir });
    const env = { ...fixture.env, LEDGER: ledgerFile };
    const spec = parseServerSpec({ name: fixture.name, command: fixture.command, args: fixture.args, env });
    return {
      running: undefined,
      ledger,
      connect: (options) => connector.connect(spec, options),
      close: async () => {
        await connector.close();
        remove();
      },
    };
  },
});

const httpCell = (fixture: HttpFixture): Cell => ({
  ...describeCell(fixture),
  transport: fixture.transport,
  open: async () => {
    const { ledgerFile, ledger, remove } = scratch();
    const running = await fixture.start({ LEDGER: ledgerFile });
    const connector = new Connector({ client });
    const spec = parseServerSpec({ name: fixture.name, url: running.url });
    return {
      running,
      ledger,
      connect: (options) => connector.connect(spec, options),
      close: async () => {
        await connector.close();
        await running.stop();
        remove();
      },
    };
  },
});

type Attach = (transport: MemoryServerEnd, options: { ledger: string }) => Promise<{ close(): Promise<void> | void }>;

const memoryCell = (name: string, era: Era, attach: Attach): Cell => ({
  name,
  era,
  version: era === 'modern' ? '2026-07-28' : '2025-11-25',
  transport: 'memory',
  abilities: { progress: true, logs: true, asks: true, announces: true, cancels: true, exits: false },
  open: async () => {
    const { ledgerFile, ledger, remove } = scratch();
    const connector = new Connector({ client });
    return {
      running: undefined,
      ledger,
      connect: async (options = {}) => {
        const link = createMemoryLink(name);
        await attach(link.server, { ledger: ledgerFile });
        return connector.connectChannel(name, link.channel, options);
      },
      close: async () => {
        await connector.close();
        remove();
      },
    };
  },
});

/** `make` creates the object that an application would attach. */
const attachedCell = (name: string, era: Era, make: (options: { ledger: string }) => object): Cell => ({
  name,
  era,
  version: era === 'modern' ? '2026-07-28' : '2025-11-25',
  transport: 'attached',
  abilities: { progress: true, logs: true, asks: true, announces: true, cancels: true, exits: false },
  open: async () => {
    const { ledgerFile, ledger, remove } = scratch();
    const connector = new Connector({ client });
    const take = () => make({ ledger: ledgerFile });
    return {
      running: undefined,
      ledger,
      connect: (options) => connector.connect({ name, transport: 'attached', hasFactory: true, take }, options),
      close: async () => {
        await connector.close();
        remove();
      },
    };
  },
});

export const cells: readonly Cell[] = [
  ...stdioFixtures.map(stdioCell),
  ...httpFixtures.map(httpCell),
  memoryCell('sdk1-memory', 'legacy', connectSdk1 as Attach),
  memoryCell('sdk2-memory', 'legacy', connectSdk2 as Attach),
  memoryCell('sdk2-memory-modern', 'modern', connectSdk2Modern as Attach),
  attachedCell('sdk1-attached', 'legacy', createSdk1Server),
];
