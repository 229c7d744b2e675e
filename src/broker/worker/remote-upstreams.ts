/**
 * Remote tools as servers of a gateway: each server that the manifest names becomes one server of the gateway, with its tools from the
 * manifest. Joins broker/worker and gateway/, which do not know each other.
 * Not here: connection and calls (remote-tools.ts), clients (gateway/).
 *
 * Invariants: the lists are the last that were learned, also without a connection; a server is ready while there is a connection. Only
 * tools are served.
 */
import type { KnownFacts, KnownServer } from '../../catalog/catalog-server.js';
import { parseServerDefinition } from '../../config/server-definition.js';
import type { Upstreams } from '../../gateway/upstreams.js';
import type { HostCallOptions, ToolResult } from '../../host/host-interface.js';
import { HostError, isHostError, notExecuted } from '../../kernel/errors.js';
import type { EraAnswer } from '../../policy/operation.js';
import { eraNamed, oldestEra } from '../../session/eras/eras.js';
import type { ListedItem } from '../../session/lists.js';
import type { JsonText } from '../../wire/channel.js';
import { memberString } from '../../wire/json-members.js';
import type { ConnectionState, ManifestTool, RemoteTools, Trace } from './index.js';

/** Time limit of a call whose client receives progress. */
const watchedMs = 10 * 60_000;

export interface RemoteUpstreamsOptions {
  /** Time limit of a call whose client does not receive progress. */
  readonly callMs: number;
  readonly onProblem: (error: unknown) => void;
}

/** A manifest tells only the tools of a server. Each result names its own era. */
const facts: KnownFacts = {
  era: oldestEra.name,
  version: oldestEra.versions[0] as string,
  capabilities: Buffer.from('{"tools":{"listChanged":true}}'),
  serverInfo: undefined,
  instructions: undefined,
};

const states: Readonly<Record<ConnectionState, KnownServer['state']>> = {
  ready: 'ready',
  connecting: 'connecting',
  reconnecting: 'connecting',
  refused: 'auth_required',
  closed: 'stopped',
};

/** The state is that of the connection, the same for all servers. */
type ListedServer = Omit<KnownServer, 'state' | 'isReady'>;

export class RemoteUpstreams implements Upstreams {
  readonly groups: ReadonlyMap<string, readonly string[]> = new Map();
  readonly carried = facts.capabilities.toString();
  readonly rulesRevision = 0;
  readonly #tools: RemoteTools;
  readonly #options: RemoteUpstreamsOptions;
  readonly #listeners = new Set<(server: string) => void>();
  #servers: ReadonlyMap<string, ListedServer> = new Map();
  #revision = 0;
  readonly #ends: readonly (() => void)[];

  constructor(tools: RemoteTools, options: RemoteUpstreamsOptions) {
    this.#tools = tools;
    this.#options = options;
    this.#ends = [
      tools.on('manifest', () => {
        const before = this.#servers;
        this.#servers = this.#listed();
        this.#changed([...before.keys(), ...this.#servers.keys()]);
      }),
      tools.on('state', () => this.#changed([...this.#servers.keys()])),
    ];
    this.#servers = this.#listed();
  }

  names(): readonly string[] {
    return [...this.#servers.keys()];
  }

  known(server: string): KnownServer | undefined {
    const listed = this.#servers.get(server);
    const { state } = this.#tools.status();
    return listed && { ...listed, state: states[state], isReady: state === 'ready' };
  }

  /** The manifest contains only what this worker may use. */
  isAllowed(): boolean {
    return true;
  }

  accessKey(): string {
    return '';
  }

  startupListing(): undefined {
    return undefined;
  }

  async call(server: string, tool: string, args: JsonText, options: HostCallOptions): Promise<ToolResult> {
    const { signal, onProgress, idempotencyKey, meta, members } = options;
    if (members !== undefined) throw asksCaller(server, tool);
    const ownMs = onProgress ? Math.max(watchedMs, this.#options.callMs) : this.#options.callMs;
    const { deadlineMs = ownMs } = options;
    const result = await this.#tools
      .execute(server, tool, args, { signal, onProgress, idempotencyKey, deadlineMs, trace: traceOf(meta) })
      .catch(workersKeyError);
    if (eraNamed(result.era).asksInResults && memberString(result.bytes, 'resultType') === 'input_required')
      throw asksCaller(server, tool);
    return result;
  }

  async request(server: string, method: string): Promise<EraAnswer> {
    throw unsupported(server, method);
  }

  async subscribe(server: string): Promise<() => void> {
    throw unsupported(server, 'resources/subscribe');
  }

  onKnownChanged(listener: (server: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  endInstance(): void {}

  close(): void {
    for (const end of this.#ends) end();
  }

  #changed(servers: readonly string[]): void {
    for (const server of new Set(servers)) for (const listener of [...this.#listeners]) listener(server);
  }

  /** In the order of the manifest. */
  #listed(): ReadonlyMap<string, ListedServer> {
    const items = new Map<string, ListedItem[]>();
    for (const { server, name, raw } of this.#tools.list()) {
      const own = items.get(server);
      if (own) own.push({ key: name, raw });
      else items.set(server, [{ key: name, raw }]);
    }
    this.#revision++;
    const servers = new Map<string, ListedServer>();
    for (const [server, own] of items) {
      const listed = this.#listedServer(server, own);
      if (listed) servers.set(server, listed);
    }
    return servers;
  }

  /** Undefined if the name is not valid for a server. */
  #listedServer(server: ManifestTool['server'], items: readonly ListedItem[]): ListedServer | undefined {
    try {
      const definition =
        this.#servers.get(server)?.definition ?? parseServerDefinition(server, { command: 'hostler' }, true);
      const lists = new Map([['tools/list', { items, ttlMs: 0, isPublic: false }] as const]);
      return { definition, facts, lists, revision: this.#revision, session: 0 };
    } catch (error) {
      this.#options.onProblem(error);
      return undefined;
    }
  }
}

/** The key that was refused is that of the worker, not that of its client. */
function workersKeyError(error: unknown): never {
  throw isHostError(error) && error.code === 'unauthenticated' ? error.with({ code: 'needs_reauth' }) : error;
}

/** Only the trace of the client's `_meta` is passed on. */
function traceOf(meta: string | undefined): Trace | undefined {
  if (meta === undefined) return undefined;
  const bytes = Buffer.from(`{${meta}}`);
  const traceparent = memberString(bytes, 'traceparent');
  return traceparent === undefined ? undefined : { traceparent, tracestate: memberString(bytes, 'tracestate') };
}

function asksCaller(server: string, tool: string): HostError {
  const message = `server '${server}': tool '${tool}' needs input from its caller, which a worker cannot pass on`;
  const facts = { server, tool, reason: 'input_required', execution: 'uncertain' } as const;
  return new HostError('protocol_error', message, { ...facts, hint: 'call it where the server runs' });
}

function unsupported(server: string, method: string): HostError {
  const hint = 'call it where the server runs; a worker has tools only';
  return notExecuted('invalid_request', `server '${server}': a worker does not support ${method}`, hint, { server });
}
