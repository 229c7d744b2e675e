/**
 * Upstreams without a host. Tests define the servers, and all requests to them are recorded. `onCall` and `onRequest` give the
 * answers; a thrown HostError is a failed call.
 */

import type { KnownFacts, KnownList, KnownServer } from '../../src/catalog/catalog-server.js';
import { parseServerDefinition, type ServerDefinition } from '../../src/config/server-definition.js';
import type { Upstreams } from '../../src/gateway/upstreams.js';
import type { HostCallOptions, HostRequestOptions, ToolResult } from '../../src/host/host-interface.js';
import type { EraAnswer, Principal } from '../../src/policy/operation.js';
import type { ListedItem, ListMethod } from '../../src/session/lists.js';
import type { Era, JsonText } from '../../src/wire/channel.js';
import { memberString } from '../../src/wire/json-members.js';

const keyMembers = { tools: 'name', prompts: 'name', resources: 'uri', templates: 'uriTemplate' } as const;
const methods = {
  tools: 'tools/list',
  prompts: 'prompts/list',
  resources: 'resources/list',
  templates: 'resources/templates/list',
} as const;
type ListName = keyof typeof methods;

/** Each list as the texts of its items. A word without brackets stands for an item that has only this name. */
export interface FakeServer {
  readonly tools?: readonly string[];
  readonly prompts?: readonly string[];
  readonly resources?: readonly string[];
  readonly templates?: readonly string[];
  readonly era?: Era;
  /** JSON text. Default: derived from the lists. Null: the server was never listed. */
  readonly capabilities?: string | null;
  readonly serverInfo?: string;
  readonly instructions?: string;
  readonly state?: KnownServer['state'];
  readonly ttlMs?: number;
  readonly isPublic?: boolean;
  /** Keys beside those of an ordinary definition. */
  readonly definition?: Readonly<Record<string, unknown>>;
}

export interface FakeCall {
  readonly server: string;
  readonly tool: string;
  readonly args: string;
  readonly options: HostCallOptions;
}

export interface FakeRequest {
  readonly server: string;
  readonly method: string;
  readonly params: string | undefined;
  readonly options: HostRequestOptions;
}

export class FakeUpstreams implements Upstreams {
  readonly groups = new Map<string, readonly string[]>();
  readonly calls: FakeCall[] = [];
  readonly requests: FakeRequest[] = [];
  readonly endedInstances: string[] = [];
  /** Subscribers by `server uri`. */
  readonly subscribers = new Map<string, Set<(params: Buffer) => void>>();
  /** Text of the result; thrown errors reject. */
  onCall: (call: FakeCall) => string | Promise<string> = () => '{"content":[]}';
  /** Text of the result, or of the error object. */
  onRequest: (request: FakeRequest) => string | { readonly error: string } | Promise<string> = () => '{}';
  onSubscribe: (server: string, uri: string) => void | Promise<void> = () => {};
  listing: Promise<void> | undefined;
  readonly listingsRequested: string[][] = [];
  /** The subscriber of each subscription, in order. */
  readonly subscribedFrom: string[] = [];
  rulesRevision = 0;
  #isAllowed: (principal: Principal, server: string, tool: string | undefined) => boolean = () => true;
  readonly #servers = new Map<string, KnownServer>();
  readonly #listeners = new Set<(server: string) => void>();

  constructor(servers: Readonly<Record<string, FakeServer>> = {}) {
    for (const [name, server] of Object.entries(servers)) this.set(name, server);
  }

  /** Adds or replaces a server and notifies the listeners. */
  set(name: string, server: FakeServer): void {
    const before = this.#servers.get(name);
    const { state = 'ready' } = server;
    this.#servers.set(name, {
      definition: definitionOf(name, server),
      state,
      isReady: state === 'ready' || state === 'suspect',
      facts: factsOf(server),
      lists: listsOf(server),
      revision: (before?.revision ?? 0) + 1,
      session: (before?.session ?? 0) + 1,
    });
    this.#tell(name);
  }

  /** Gives the server a new session in the same run. */
  renew(name: string): void {
    const known = this.#servers.get(name) as KnownServer;
    this.#servers.set(name, { ...known, session: known.session + 1 });
    this.#tell(name);
  }

  /** Changes the state of the server. Its facts and lists stay the same. */
  setState(name: string, state: KnownServer['state']): void {
    const known = this.#servers.get(name) as KnownServer;
    this.#servers.set(name, { ...known, state, isReady: state === 'ready' || state === 'suspect' });
    this.#tell(name);
  }

  remove(name: string): void {
    this.#servers.delete(name);
    this.#tell(name);
  }

  /** Replaces the access rules. */
  allow(isAllowed: (principal: Principal, server: string, tool: string | undefined) => boolean): void {
    this.#isAllowed = isAllowed;
    this.rulesRevision++;
  }

  /** Sends an update of a resource to its subscribers. */
  update(server: string, uri: string, params = JSON.stringify({ uri })): void {
    for (const tell of this.subscribers.get(`${server} ${uri}`) ?? []) tell(Buffer.from(params));
  }

  names(): readonly string[] {
    return [...this.#servers.keys()];
  }

  known(server: string): KnownServer | undefined {
    return this.#servers.get(server);
  }

  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean {
    return this.#isAllowed(principal, server, tool);
  }

  /** The members of a principal that the rules of a test use. */
  accessKeyOf: (principal: Principal) => string = ({ id, role, scopes }) => JSON.stringify([id, role, scopes]);
  accessKey(principal: Principal): string {
    return this.accessKeyOf(principal);
  }

  /** Tools (`server/tool`) that may run again after an uncertain outcome. */
  readonly repeatable = new Set<string>();
  mayRunTwice(server: string, tool: string): boolean {
    return this.repeatable.has(`${server}/${tool}`);
  }

  startupListing(servers: readonly string[] = this.names()): Promise<void> | undefined {
    this.listingsRequested.push([...servers]);
    return this.listing;
  }

  async call(server: string, tool: string, args: JsonText, options: HostCallOptions): Promise<ToolResult> {
    const call = { server, tool, args: textOf(args), options };
    this.calls.push(call);
    const bytes = Buffer.from(await this.onCall(call));
    return { bytes, isError: false, era: this.#eraOf(server), json: () => JSON.parse(bytes.toString()) };
  }

  async request(
    server: string,
    method: string,
    params: JsonText | undefined,
    options: HostRequestOptions,
  ): Promise<EraAnswer> {
    const request = { server, method, params: params === undefined ? undefined : textOf(params), options };
    this.requests.push(request);
    const answer = await this.onRequest(request);
    const era = this.#eraOf(server);
    return typeof answer === 'string'
      ? { kind: 'result', bytes: Buffer.from(answer), mayHold: 0, era }
      : { kind: 'error', bytes: Buffer.from(answer.error), mayHold: 0, era };
  }

  async subscribe(
    server: string,
    uri: string,
    _principal: Principal,
    updated: (params: Buffer) => void,
    instance: string,
  ) {
    this.subscribedFrom.push(instance);
    await this.onSubscribe(server, uri);
    const key = `${server} ${uri}`;
    const all = this.subscribers.get(key) ?? new Set();
    this.subscribers.set(key, all);
    // The same function may subscribe twice.
    const own = (params: Buffer) => updated(params);
    all.add(own);
    return () => {
      all.delete(own);
      if (all.size === 0) this.subscribers.delete(key);
    };
  }

  onKnownChanged(listener: (server: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get listenerCount(): number {
    return this.#listeners.size;
  }

  endInstance(instance: string): void {
    this.endedInstances.push(instance);
  }

  #eraOf(server: string): Era {
    return this.#servers.get(server)?.facts?.era ?? 'legacy';
  }

  #tell(server: string): void {
    for (const listener of [...this.#listeners]) listener(server);
  }
}

const textOf = (text: JsonText): string => (typeof text === 'string' ? text : Buffer.from(text).toString('utf8'));

const definitionOf = (name: string, { definition }: FakeServer): ServerDefinition =>
  parseServerDefinition(name, { command: 'true', ...definition }, true);

function listsOf(server: FakeServer): ReadonlyMap<ListMethod, KnownList> {
  const { ttlMs = 0, isPublic = false } = server;
  const lists = (Object.keys(methods) as ListName[]).flatMap((name) => {
    const items = server[name]?.map((text) => itemOf(text, keyMembers[name]));
    return items ? [[methods[name], { items, ttlMs, isPublic }] as const] : [];
  });
  return new Map(lists);
}

function itemOf(text: string, key: string): ListedItem {
  const raw = Buffer.from(text.startsWith('{') ? text : JSON.stringify({ [key]: text }));
  return { key: memberString(raw, key) ?? '', raw };
}

function factsOf(server: FakeServer): KnownFacts | undefined {
  const { capabilities, era = 'legacy', serverInfo, instructions } = server;
  if (capabilities === null) return undefined;
  const listed = {
    ...(server.tools ? { tools: {} } : {}),
    ...(server.prompts ? { prompts: {} } : {}),
    ...(server.resources || server.templates ? { resources: { subscribe: true } } : {}),
  };
  return {
    era,
    version: era === 'modern' ? '2026-07-28' : '2025-11-25',
    capabilities: Buffer.from(capabilities ?? JSON.stringify(listed)),
    serverInfo: serverInfo === undefined ? undefined : Buffer.from(serverInfo),
    instructions,
  };
}
