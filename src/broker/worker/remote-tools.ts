/**
 * The tools of a host on another machine: listed from the manifest, called through the broker. Joins the files beside it.
 * Not here: transports (connect-worker.ts), MCP clients (serve-worker.ts).
 *
 * Invariants: a call ends once, by its deadline at the latest; a tool that is not in the newest manifest is not called; a list is the
 * last one that was learned, and never empty because of a failure.
 */

import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { Cancellation, type CancelSignal } from '../../kernel/cancel-signal.js';
import { type Clock, KeepAlive, sleep, systemClock } from '../../kernel/clock.js';
import { Emitter, type Listener } from '../../kernel/emitter.js';
import { type ErrorCode, type HostError, notExecuted } from '../../kernel/errors.js';
import { newId, type Random, systemRandom } from '../../kernel/random.js';
import { replaceFile } from '../../kernel/replace-file.js';
import { CallResult } from '../../policy/operation.js';
import type { ToolArguments } from '../../session/session.js';
import { checkValue } from '../../wire/json-edit.js';
import { memberText } from '../../wire/json-members.js';
import { brokerLimits } from '../protocol/limits.js';
import type { Trace } from '../protocol/messages.js';
import { type Manifest, type ManifestTool, readManifestBody } from '../protocol/reply-body.js';
import { argumentsBytes, callKey, requireValidCall } from './call-arguments.js';
import { ambiguousTool, type CallTarget, closedCall, notConnected, refusedCall, unknownTool } from './call-errors.js';
import { type CallResultBody, CallTable, type NewCall } from './call-table.js';
import type { OpenConnection } from './connection.js';
import { ConnectionKeeper, type ConnectionState } from './connection-keeper.js';

export interface RemoteToolsOptions {
  readonly open: OpenConnection;
  readonly clock?: Clock | undefined;
  readonly random?: Random | undefined;
  /** How long a call that was never sent waits for a connection; until its deadline if absent. */
  readonly connectionWaitMs?: number | undefined;
  /** Keeps the last manifest, for a start without the broker. One file for each worker and broker. */
  readonly manifestFile?: string | undefined;
}

export interface RemoteCallOptions {
  /** How long the call may take from now, reconnects included; 60 s by default, 10 min at most. */
  readonly deadlineMs?: number | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Calls with the same key and arguments run once within a day. */
  readonly idempotencyKey?: string | undefined;
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly trace?: Trace | undefined;
}

/** The whole result as the server wrote it. */
export type RemoteResult = Pick<CallResult, 'bytes' | 'isError' | 'era' | 'json'>;

export interface RemoteStatus {
  readonly state: ConnectionState;
  /** As the broker last told it; undefined before the first connection. */
  readonly worker: string | undefined;
  readonly role: string | undefined;
  readonly revision: string | undefined;
  readonly tools: number;
  readonly inFlight: number;
  readonly inFlightBytes: number;
  /** Connections so far. */
  readonly connections: number;
  readonly droppedReplies: number;
  /** Why it is not ready, or what failed last. */
  readonly lastError: HostError | undefined;
}

export interface RemoteEvents {
  /** The tools have changed. */
  manifest: { readonly revision: string; readonly tools: number };
  state: { readonly state: ConnectionState; readonly error: HostError | undefined };
  /** `times`: 1 for the first connection, more for "connected again". */
  connected: { readonly worker: string; readonly role: string | undefined; readonly times: number };
  /** The manifest file could not be read or written. The worker continues without it. */
  problem: { readonly error: unknown };
}

const deadlineDefaultMs = 60_000;
/** How long a call of an unknown tool waits for the newest manifest. */
const lookMs = 5_000;

export class RemoteTools {
  readonly #clock: Clock;
  readonly #keeper: ConnectionKeeper;
  readonly #calls: CallTable;
  readonly #events = new Emitter<RemoteEvents>();
  readonly #alive = new KeepAlive();
  readonly #manifestFile: string | undefined;
  #identity: { readonly worker: string; readonly role: string | undefined } | undefined;
  #isClosed = false;

  constructor(options: RemoteToolsOptions) {
    const { open, clock = systemClock, random = systemRandom, connectionWaitMs, manifestFile } = options;
    this.#clock = clock;
    this.#manifestFile = manifestFile;
    this.#calls = new CallTable({ clock, connectionWaitMs, stale: () => this.#keeper.stale() });
    this.#keeper = new ConnectionKeeper({
      ...{ open, clock, random, session: newId(), manifest: this.#readFile() },
      heard: (message) => this.#calls.heard(message),
      use: (connection) => this.#calls.use(connection),
      connected: ({ worker, role }) => {
        this.#identity = { worker, role };
        this.#events.emit('connected', { worker, role, times: this.#keeper.status.opened });
      },
      learned: ({ revision, tools }, body, isNew) => {
        if (!isNew) return;
        this.#writeFile(body);
        this.#events.emit('manifest', { revision, tools: tools.length });
      },
      changed: (state, error) => {
        if (state === 'refused' && error) this.#calls.fail((call, execution) => refusedCall(call, execution, error));
        this.#events.emit('state', { state, error });
      },
    });
  }

  /** The last known tools, also without a connection. */
  list(): readonly ManifestTool[] {
    return this.#keeper.status.manifest?.tools ?? [];
  }

  /** A manifest is known, from a host or from the file. */
  get hasManifest(): boolean {
    return this.#keeper.status.manifest !== undefined;
  }

  /** `server` may be left out if only one server has the tool. */
  async execute(
    server: string | undefined,
    tool: string,
    args: ToolArguments = {},
    options: RemoteCallOptions = {},
  ): Promise<RemoteResult> {
    requireValidCall(server, tool, options);
    const target = { server, tool };
    const bytes = argumentsBytes(target, args);
    this.#requireUsable(target);
    const { deadlineMs = deadlineDefaultMs, signal } = options;
    const deadlineAtMs = this.#clock.nowMs() + Math.min(deadlineMs, brokerLimits.deadlineMs);
    const release = this.#calls.reserve(bytes.length);
    this.#alive.hold();
    try {
      const found = this.#find(target) ?? (await this.#findLater(target, deadlineAtMs, signal));
      this.#requireUsable(target);
      return await this.#send(this.#newCall(found, bytes, options), deadlineAtMs, options);
    } finally {
      release();
      this.#alive.letGo();
    }
  }

  /** Resolves when the tools were learned from a host; rejects if that fails, or takes longer. */
  async ready(limitMs: number, signal?: CancelSignal): Promise<void> {
    const untilMs = this.#clock.nowMs() + limitMs;
    this.#alive.hold();
    try {
      while (!this.#keeper.status.hasLearned) {
        const { state, lastError: error } = this.#keeper.status;
        if (state === 'closed') throw notConnected(undefined);
        if (error && (state === 'refused' || isHopeless(error))) throw error;
        const leftMs = untilMs - this.#clock.nowMs();
        if (leftMs <= 0) throw notConnected(error);
        await pause(this.#clock, leftMs, signal, (wake) => [
          this.#events.on('state', wake),
          this.#events.on('manifest', wake),
        ]);
      }
    } finally {
      this.#alive.letGo();
    }
  }

  /** Returns a function that removes the listener. */
  on<Name extends keyof RemoteEvents>(name: Name, listener: Listener<RemoteEvents[Name]>): () => void {
    return this.#events.on(name, listener);
  }

  status(): RemoteStatus {
    const { state, opened, lastError, manifest } = this.#keeper.status;
    return {
      ...{ state, lastError, worker: this.#identity?.worker, role: this.#identity?.role },
      revision: manifest?.revision,
      tools: this.list().length,
      connections: opened,
      ...this.#calls.usage,
    };
  }

  /** Calls in flight are cancelled; whether they ran is not known. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#calls.fail(closedCall);
    await this.#keeper.close();
    this.#alive.close();
  }

  #find(target: CallTarget): ManifestTool | undefined {
    const found = findTools(this.list(), target);
    if (found.length > 1)
      throw ambiguousTool(
        target,
        found.map(({ server }) => server),
      );
    return found[0];
  }

  /** The tool is not in the known manifest, so the newest manifest is asked for. */
  async #findLater(target: CallTarget, deadlineAtMs: number, signal: CancelSignal | undefined): Promise<ManifestTool> {
    if (!this.hasManifest) {
      await this.ready(deadlineAtMs - this.#clock.nowMs(), signal).catch((error: HostError) => {
        throw refusedCall(target, 'not_executed', error);
      });
    }
    const known = this.#find(target);
    if (known) return known;
    const limitMs = Math.min(deadlineAtMs - this.#clock.nowMs(), lookMs);
    await pause(this.#clock, limitMs, signal, (wake) => {
      void this.#keeper.look().then(wake);
      return [];
    });
    const found = this.#find(target);
    if (found) return found;
    const denied = this.#keeper.status.manifest?.denied;
    throw denied ? refusedCall(target, 'not_executed', denied) : unknownTool(target);
  }

  #newCall({ server, name }: ManifestTool, args: Buffer, options: RemoteCallOptions): NewCall {
    const { idempotencyKey, onProgress, trace } = options;
    return {
      ...{ server, tool: name, args, trace },
      key: idempotencyKey === undefined ? newId() : callKey(idempotencyKey),
      isCallersKey: idempotencyKey !== undefined,
      wantsProgress: onProgress !== undefined,
      manifestRevision: this.#keeper.status.manifest?.revision,
    };
  }

  #send(call: NewCall, deadlineAtMs: number, { signal, onProgress }: RemoteCallOptions): Promise<RemoteResult> {
    return new Promise((resolve, reject) => {
      let giveUp = () => {};
      const abort = () => giveUp();
      const done = (outcome: CallResultBody | HostError) => {
        signal?.removeEventListener('abort', abort);
        if (outcome instanceof Error) return reject(outcome);
        const isError = memberText(outcome.bytes, 'isError') === 'true';
        resolve(new CallResult(outcome.bytes, isError, 1, false, outcome.era));
      };
      // First, because a call may end within `start`.
      signal?.addEventListener('abort', abort, { once: true });
      giveUp = this.#calls.start(call, { deadlineAtMs, onProgress, done });
      if (signal?.aborted) giveUp();
    });
  }

  #requireUsable(target: CallTarget): void {
    if (this.#isClosed) throw closedCall(target, 'not_executed');
    const { state, lastError } = this.#keeper.status;
    if (state === 'refused' && lastError) throw refusedCall(target, 'not_executed', lastError);
  }

  #readFile(): Manifest | undefined {
    try {
      return this.#manifestFile === undefined ? undefined : readManifestFile(this.#manifestFile);
    } catch (error) {
      // A listener can be added only after the constructor.
      queueMicrotask(() => this.#events.emit('problem', { error }));
      return undefined;
    }
  }

  #writeFile(body: Buffer): void {
    try {
      const file = this.#manifestFile;
      if (file !== undefined) replaceFile(file, `${file}.${newId()}`, (descriptor) => writeFileSync(descriptor, body));
    } catch (error) {
      this.#events.emit('problem', { error });
    }
  }
}

/** Errors that may pass, such as those of a connection. After any other error, the host would give the same answer again. */
const passing: ReadonlySet<ErrorCode> = new Set(['transport', 'timeout', 'connect_failed', 'cancelled', 'expired']);
const isHopeless = ({ code, retryable }: HostError): boolean => !retryable && !passing.has(code);

/** Ends after this time, or when `begin` calls its argument. Throws when the caller gives up. `begin` returns its clean-up. */
async function pause(
  clock: Clock,
  limitMs: number,
  signal: CancelSignal | undefined,
  begin: (wake: () => void) => readonly (() => void)[],
): Promise<void> {
  const over = new Cancellation();
  const wake = () => over.abort();
  const ends = begin(wake);
  signal?.addEventListener('abort', wake);
  if (signal?.aborted) wake();
  await sleep(clock, limitMs, over);
  signal?.removeEventListener('abort', wake);
  for (const end of ends) end();
  if (signal?.aborted) throw notExecuted('cancelled', 'the caller cancelled the call');
}

/** All tools that match; at most one if the server is named. */
export function findTools(tools: readonly ManifestTool[], { server, tool }: CallTarget): readonly ManifestTool[] {
  const found = tools.filter((each) => each.name === tool && (server === undefined || each.server === server));
  return server === undefined ? found : found.slice(0, 1);
}

/** Undefined if there is no file. Throws if it cannot be used. */
function readManifestFile(file: string): Manifest | undefined {
  const { size } = statSync(file, { throwIfNoEntry: false }) ?? {};
  if (size === undefined) return undefined;
  if (size > brokerLimits.manifestBytes) throw new Error(`${file} is too large for a manifest`);
  const bytes = readFileSync(file);
  checkValue(bytes, file);
  return readManifestBody(bytes);
}
