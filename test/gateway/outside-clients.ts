/**
 * Third-party clients behind one small interface: both SDK generations as libraries, inspector and mcporter as processes. Not here:
 * the tests (clients.test.ts).
 *
 * Invariant: a client that cannot do something has no such member; nothing is faked for it.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import * as v2 from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as HttpClientTransport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport as Transport1 } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { conformanceTools } from '../../scripts/bootstrap.mjs';

type Arguments = Record<string, string>;

interface OpenClient {
  /** Names. */
  tools(): Promise<string[]>;
  /** Text of the first block. */
  call(tool: string, args: Arguments): Promise<string>;
  /** URIs. */
  resources?(): Promise<string[]>;
  /** Text of the first part. */
  read?(uri: string): Promise<string>;
  prompts?(): Promise<string[]>;
  /** Text of the first message. */
  prompt?(name: string, args: Arguments): Promise<string>;
  complete?(prompt: string, argument: string, value: string): Promise<string[]>;
  /** Resolves when subscribed; `heard` is called with the URI of each update. */
  subscribe?(uri: string, heard: (uri: string) => void): Promise<void>;
  close(): Promise<void>;
}

export interface OutsideClient {
  readonly name: string;
  readonly era: 'legacy' | 'modern' | 'either';
  open(url: string): Promise<OpenClient>;
}

const info = { name: 'outside-client', version: '1.0.0' };

interface Block {
  readonly type: string;
  readonly text?: string;
}
interface CallAnswer {
  readonly content: readonly Block[];
}
interface ReadAnswer {
  readonly contents: readonly { readonly text?: string }[];
}
interface PromptAnswer {
  readonly messages: readonly { readonly content: Block }[];
}
const textOf = (answer: unknown): string => (answer as CallAnswer).content[0]?.text ?? '';
const partOf = (answer: unknown): string => (answer as ReadAnswer).contents[0]?.text ?? '';
const messageOf = (answer: unknown): string => (answer as PromptAnswer).messages[0]?.content.text ?? '';

const sdk1: OutsideClient = {
  name: 'SDK 1.32',
  era: 'legacy',
  open: async (url) => {
    const client = new Client1(info);
    // Its optional members are declared without undefined.
    await client.connect(new HttpClientTransport1(new URL(url)) as Transport1);
    return {
      tools: async () => (await client.listTools()).tools.map(({ name }) => name),
      call: async (name, args) => textOf(await client.callTool({ name, arguments: args })),
      resources: async () => (await client.listResources()).resources.map(({ uri }) => uri),
      read: async (uri) => partOf(await client.readResource({ uri })),
      prompts: async () => (await client.listPrompts()).prompts.map(({ name }) => name),
      prompt: async (name, args) => messageOf(await client.getPrompt({ name, arguments: args })),
      complete: async (prompt, name, value) =>
        (await client.complete({ ref: { type: 'ref/prompt', name: prompt }, argument: { name, value } })).completion
          .values,
      subscribe: async (uri, heard) => {
        client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => heard(params.uri));
        await client.subscribeResource({ uri });
      },
      close: () => client.close(),
    };
  },
};

const sdk2 = (name: string, mode: 'legacy' | 'auto' | { pin: string }, era: OutsideClient['era']): OutsideClient => ({
  name,
  era,
  open: async (url) => {
    const client = new v2.Client(info, { versionNegotiation: { mode } });
    await client.connect(new v2.StreamableHTTPClientTransport(new URL(url)));
    return {
      tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
      call: async (tool, args) => textOf(await client.callTool({ name: tool, arguments: args })),
      resources: async () => (await client.listResources()).resources.map(({ uri }) => uri),
      read: async (uri) => partOf(await client.readResource({ uri })),
      prompts: async () => (await client.listPrompts()).prompts.map((prompt) => prompt.name),
      prompt: async (prompt, args) => messageOf(await client.getPrompt({ name: prompt, arguments: args })),
      complete: async (prompt, argument, value) => {
        const ref = { type: 'ref/prompt' as const, name: prompt };
        return (await client.complete({ ref, argument: { name: argument, value } })).completion.values;
      },
      subscribe: async (uri, heard) => {
        client.setNotificationHandler('notifications/resources/updated', ({ params }) => heard(params.uri));
        if (client.getProtocolEra() === 'modern') await client.listen({ resourceSubscriptions: [uri] });
        else await client.subscribeResource({ uri });
      },
      close: () => client.close(),
    };
  },
});

/**
 * Runs a command-line client with a home directory of its own, because these clients store catalogues and read settings of other
 * programs there.
 */
function commandLine(file: string): { run(args: readonly string[]): Promise<string>; remove(): void } {
  const home = mkdtempSync(path.join(os.tmpdir(), 'hostler-client-home-'));
  const env = { PATH: process.env.PATH ?? '', HOME: home, XDG_CONFIG_HOME: home, XDG_DATA_HOME: home };
  const entry = path.join(conformanceTools, 'node_modules', file);
  return {
    run: async (args) => {
      const options = { env, cwd: home, timeout: 60_000, maxBuffer: 2 ** 24 };
      return (await promisify(execFile)(process.execPath, [entry, ...args], options)).stdout;
    },
    remove: () => rmSync(home, { recursive: true, force: true }),
  };
}

const pairs = (args: Arguments): string[] => Object.entries(args).map(([name, value]) => `${name}=${value}`);

const inspector = (era: 'legacy' | 'auto' | 'modern'): OutsideClient => ({
  name: `inspector, ${era}`,
  era: era === 'auto' ? 'either' : era,
  open: async (url) => {
    const command = commandLine('@modelcontextprotocol/inspector/clients/launcher/build/index.js');
    const target = [
      '--cli',
      '--server-url',
      url,
      '--transport',
      'http',
      '--protocol-era',
      era,
      '--format',
      'json',
      '-q',
    ];
    const ask = async (method: string, ...args: string[]): Promise<unknown> =>
      (JSON.parse(await command.run([...target, '--method', method, ...args])) as { result: unknown }).result;
    return {
      tools: async () => ((await ask('tools/list')) as { tools: { name: string }[] }).tools.map(({ name }) => name),
      call: async (tool, args) =>
        textOf(await ask('tools/call', '--tool-name', tool, '--tool-args-json', JSON.stringify(args))),
      read: async (uri) => partOf(await ask('resources/read', '--uri', uri)),
      prompt: async (name, args) =>
        messageOf(await ask('prompts/get', '--prompt-name', name, '--prompt-args', ...pairs(args))),
      close: async () => command.remove(),
    };
  },
});

const mcporter: OutsideClient = {
  name: 'mcporter',
  era: 'legacy',
  open: async (url) => {
    const command = commandLine('mcporter/dist/cli.js');
    const target = ['--http-url', url, '--allow-http'];
    return {
      tools: async () =>
        (JSON.parse(await command.run(['list', ...target, '--json'])) as { tools: { name: string }[] }).tools.map(
          ({ name }) => name,
        ),
      call: async (tool, args) => (await command.run(['call', ...target, tool, ...pairs(args)])).trim(),
      close: async () => command.remove(),
    };
  },
};

export const outsideClients: readonly OutsideClient[] = [
  sdk1,
  sdk2('SDK 2.4, legacy', 'legacy', 'legacy'),
  sdk2('SDK 2.4, auto', 'auto', 'either'),
  sdk2('SDK 2.4, pinned to 2026-07-28', { pin: '2026-07-28' }, 'modern'),
  inspector('legacy'),
  inspector('auto'),
  inspector('modern'),
  mcporter,
];

/** The document of server-everything that clients read. */
export const documentUri = 'demo://resource/static/document/architecture.md';

/** The results of one client with server-everything, whose names have the prefix `prefix`. */
export interface Deeds {
  readonly tools: readonly string[];
  readonly echo: string;
  readonly resources?: readonly string[];
  readonly document?: string;
  readonly prompts?: readonly string[];
  readonly prompt?: string;
  readonly completion?: readonly string[];
  readonly updated?: string;
}

/** Uses every feature of the client once. */
export async function exercise(outside: OutsideClient, url: string, prefix: string): Promise<Deeds> {
  const client = await outside.open(url);
  try {
    return {
      tools: await client.tools(),
      echo: await client.call(`${prefix}echo`, { message: 'hi' }),
      ...(client.resources && { resources: await client.resources() }),
      ...(client.read && { document: await client.read(documentUri) }),
      ...(client.prompts && { prompts: await client.prompts() }),
      ...(client.prompt && { prompt: await client.prompt(`${prefix}args-prompt`, { city: 'Paris' }) }),
      ...(client.complete && {
        completion: await client.complete(`${prefix}completable-prompt`, 'department', 'Eng'),
      }),
      ...(client.subscribe && {
        updated: await hearOfUpdate(client, client.subscribe, `${prefix}toggle-subscriber-updates`),
      }),
    };
  } finally {
    await client.close();
  }
}

/** Subscribes and makes the server send updates. The tool for that toggles updates for the whole server. */
async function hearOfUpdate(
  client: OpenClient,
  subscribe: NonNullable<OpenClient['subscribe']>,
  toggle: string,
): Promise<string> {
  let told: (uri: string) => void = () => {};
  const update = new Promise<string>((resolve) => {
    told = resolve;
  });
  await subscribe(documentUri, (uri) => told(uri));
  const isOn = async (): Promise<boolean> => (await client.call(toggle, {})).startsWith('Started');
  if (!(await isOn())) await isOn();
  try {
    return await update;
  } finally {
    await isOn();
  }
}
