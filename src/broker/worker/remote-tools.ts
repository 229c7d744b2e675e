/**
 * The tools of a Host on another machine: listed from the manifest, called through a broker. Joins the files beside it.
 * Not here: which engine carries it (engine-of.ts), MCP clients that use it (cli/worker.ts).
 *
 * Invariants: a call ends once, by its caller's time at the latest; a tool that the manifest does not have is not asked for over
 * the wire; a list is what was last learned, and never empty because something went wrong.
 */
import { createHash } from 'node:crypto';
import { type CancelSignal, isCancelSignal } from '../../kernel/cancel-signal.js';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { Emitter, type Listener } from '../../kernel/emitter.js';
import { type ErrorCode, HostError } from '../../kernel/errors.js';
import { KeepAlive } from '../../kernel/keep-alive.js';
import { newId, type Random, systemRandom } from '../../kernel/random.js';
import { CallResult } from '../../policy/operation.js';
import type { ToolArguments } from '../../session/session.js';
import type { JsonText } from '../../wire/frame.js';
import { memberText } from '../../wire/json-members.js';
import { checkObject } from '../../wire/json-text.js';
import { type ManifestTool, nameCharsMax, type Trace } from '../messages.js';
import { idPattern, type OpenWorkerLink, type Sender, ttlMsMax } from '../ports.js';
import { closedWorker, refusedCall, unknownTool, whichServer } from './call-errors.js';
import { CallTable, type NewCall } from './call-table.js';
import { currentDialect, olderDialect } from './dialect.js';
import { LinkKeeper, type LinkState, type Snapshot } from './link-keeper.js';
import { ManifestAsks } from './manifest-asks.js';
import { within } from './within.js';

export interface RemoteToolsOptions {
  readonly open: OpenWorkerLink;
  readonly clock?: Clock | undefined;
  readonly random?: Random | undefined;
  /** Speaks the bodies of an older broker. */
  readonly compat?: boolean | undefined;
  /** How long a call that was never sent waits for a connection; absent: as long as its caller does. */
  readonly linkWaitMs?: number | undefined;
}

export interface RemoteCallOptions {
  /** How long it may take from now, reconnects included; 60 s when absent, at most a day. */
  readonly deadlineMs?: number | undefined;
  readonly signal?: CancelSignal | undefined;
  /** The same key with the same call is the same call, and runs once, for a day. */
  readonly idempotencyKey?: string | undefined;
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly trace?: Trace | undefined;
}

/** What a tool answered: the whole result as its server wrote it. */
export type RemoteResult = Pick<CallResult, 'bytes' | 'isError' | 'era' | 'json'>;

export interface RemoteStatus {
  readonly state: LinkState;
  /** As the broker says; undefined before it ever did. */
  readonly me: Sender | undefined;
  readonly revision: string | undefined;
  readonly tools: number;
  readonly inFlight: number;
  readonly inFlightBytes: number;
  /** Connections so far. */
  readonly connections: number;
  readonly droppedReplies: number;
  /** Why it is not ready, or what went wrong last. */
  readonly lastError: HostError | undefined;
}

interface RemoteEvents {
  manifest: { readonly revision: string; readonly tools: number };
  state: { readonly state: LinkState; readonly error: HostError | undefined };
}

const deadlineDefaultMs = 60_000;
/** A question for the newest manifest is not waited for longer than this before a tool is said not to be there. */
const lookMs = 5_000;
const idempotencyKeyCharsMax = 4_096;

export class RemoteTools {
  readonly #clock: Clock;
  readonly #keeper: LinkKeeper;
  readonly #calls: CallTable;
  readonly #events = new Emitter<RemoteEvents>();
  readonly #alive = new KeepAlive();
  #isClosed = false;

  constructor(options: RemoteToolsOptions) {
    const { open, clock = systemClock, random = systemRandom, compat = false, linkWaitMs } = options;
    const dialect = compat ? olderDialect : currentDialect;
    const asks = new ManifestAsks(clock, dialect);
    this.#clock = clock;
    this.#calls = new CallTable({
      ...{ clock, dialect, linkWaitMs },
      broken: (link, error) => this.#keeper.broken(link, error),
      stale: () => this.#keeper.stale(),
    });
    this.#keeper = new LinkKeeper({
      ...{ open, clock, random, asks },
      replied: (id, body) => {
        if (!asks.take(id, body)) this.#calls.replied(id, body);
      },
      progress: (callKey, params) => this.#calls.progress(callKey, params),
      swapped: (now, before) => this.#swapped(now, before),
      changed: (state, error) => this.#changed(state, error),
    });
  }

  /** What was last learned, also while there is no connection. */
  list(): readonly ManifestTool[] {
    return this.#keeper.snapshot.manifest?.tools ?? [];
  }

  get toolCount(): number {
    return this.list().length;
  }

  /** `server` may be left out where only one server has such a tool. */
  async execute(
    server: string | undefined,
    tool: string,
    args: ToolArguments = {},
    options: RemoteCallOptions = {},
  ): Promise<RemoteResult> {
    const { deadlineMs = deadlineDefaultMs, signal } = options;
    requireValid(server, tool, options);
    const text = argumentsText(args);
    const bytes = typeof text === 'string' ? Buffer.byteLength(text) : text.byteLength;
    this.#requireOpen({ server, tool });
    const deadlineAtMs = this.#clock.nowMs() + Math.min(deadlineMs, ttlMsMax);
    const release = this.#calls.reserve(bytes);
    this.#alive.hold();
    try {
      const found = this.#find(server, tool) ?? (await this.#findLater(server, tool, deadlineAtMs, signal));
      this.#requireOpen({ server, tool });
      return await this.#send(newCall(found, text, bytes, options, this.#revision), deadlineAtMs, options);
    } finally {
      release();
      this.#alive.letGo();
    }
  }

  /** Resolves when the tools are known; rejects when they cannot be, or are not by then. */
  async ready(limitMs: number, signal?: CancelSignal): Promise<void> {
    if (this.#keeper.snapshot.manifest) return;
    this.#alive.hold();
    let off = () => {};
    try {
      await within(
        this.#clock,
        this.#clock.nowMs() + limitMs,
        signal,
        (resolve, reject) => {
          const look = () => {
            const { state, lastError: error } = this.#keeper;
            if (this.#keeper.snapshot.manifest) resolve();
            else if (state === 'closed') reject(notConnected(undefined));
            else if (error && (state === 'refused' || isHopeless(error))) reject(error);
          };
          off = this.#events.on('state', look);
          look();
        },
        () => notConnected(this.#keeper.lastError),
      );
    } finally {
      off();
      this.#alive.letGo();
    }
  }

  /** `manifest`: other tools than before. `state`: connected, or not, and why. Returns what takes the listener off. */
  on<Name extends keyof RemoteEvents>(name: Name, listener: Listener<RemoteEvents[Name]>): () => void {
    return this.#events.on(name, listener);
  }

  status(): RemoteStatus {
    const { state, me, snapshot, opened, lastError } = this.#keeper;
    return {
      ...{ state, me, lastError },
      revision: snapshot.manifest?.revision,
      tools: this.toolCount,
      inFlight: this.#calls.inFlight,
      inFlightBytes: this.#calls.inFlightBytes,
      connections: opened,
      droppedReplies: this.#calls.dropped,
    };
  }

  /** Calls under way are cancelled and told so; whether they run is not known. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#calls.fail(closedWorker);
    await this.#keeper.close();
    this.#alive.close();
  }

  get #revision(): string | undefined {
    return this.#keeper.snapshot.manifest?.revision;
  }

  #find(server: string | undefined, tool: string): ManifestTool | undefined {
    const found = this.#keeper.snapshot.manifest?.find(server, tool) ?? [];
    if (found.length > 1) {
      const servers = found.map((each) => each.server);
      throw whichServer({ server, tool }, servers);
    }
    return found[0];
  }

  /** Not there as far as we know: the newest manifest decides. */
  async #findLater(
    server: string | undefined,
    tool: string,
    deadlineAtMs: number,
    signal: CancelSignal | undefined,
  ): Promise<ManifestTool> {
    if (!this.#keeper.snapshot.manifest) {
      await this.ready(deadlineAtMs - this.#clock.nowMs(), signal).catch((error: HostError) => {
        throw refusedCall({ server, tool }, 'not_executed', error);
      });
    }
    const known = this.#find(server, tool);
    if (known) return known;
    const lookUntilMs = Math.min(deadlineAtMs, this.#clock.nowMs() + lookMs);
    await within(this.#clock, lookUntilMs, signal, (resolve) => this.#keeper.look().then(resolve), undefined);
    const found = this.#find(server, tool);
    if (found) return found;
    const denied = this.#keeper.snapshot.manifest?.denied;
    throw denied ? refusedCall({ server, tool }, 'not_executed', denied) : unknownTool({ server, tool });
  }

  #send(call: NewCall, deadlineAtMs: number, { signal, onProgress }: RemoteCallOptions): Promise<RemoteResult> {
    return new Promise((resolve, reject) => {
      let leave = () => {};
      const abort = () => leave();
      const done = (outcome: { readonly bytes: Buffer; readonly era: CallResult['era'] } | Error) => {
        signal?.removeEventListener('abort', abort);
        if (outcome instanceof Error) return reject(outcome);
        const isError = memberText(outcome.bytes, 'isError') === 'true';
        resolve(new CallResult(outcome.bytes, isError, 1, false, outcome.era));
      };
      leave = this.#calls.start(call, { deadlineAtMs, onProgress, done });
      if (signal?.aborted) leave();
      else signal?.addEventListener('abort', abort, { once: true });
    });
  }

  #requireOpen(call: Pick<NewCall, 'server' | 'tool'>): void {
    if (this.#isClosed) throw closedWorker(call, 'not_executed');
    const { state, lastError } = this.#keeper;
    if (state === 'refused' && lastError) throw refusedCall(call, 'not_executed', lastError);
  }

  #swapped({ link, manifest }: Snapshot, before: Snapshot): void {
    this.#calls.use(link);
    if (manifest && manifest.revision !== before.manifest?.revision)
      this.#events.emit('manifest', { revision: manifest.revision, tools: manifest.tools.length });
  }

  #changed(state: LinkState, error: HostError | undefined): void {
    if (state === 'refused' && error) this.#calls.fail((call, execution) => refusedCall(call, execution, error));
    this.#events.emit('state', { state, error });
  }
}

/** Its key is made here, once, and kept over every sending. */
function newCall(
  { server, name }: ManifestTool,
  args: JsonText,
  bytes: number,
  { idempotencyKey, onProgress, trace }: RemoteCallOptions,
  manifestRevision: string | undefined,
): NewCall {
  return {
    callKey: idempotencyKey === undefined ? newId() : callKeyOf(idempotencyKey),
    ...{ server, tool: name, args, bytes, manifestRevision, trace },
    wantsProgress: onProgress !== undefined,
    isCallersKey: idempotencyKey !== undefined,
  };
}

/** Any text may be a key; on the wire it is a name. */
const callKeyOf = (key: string): string =>
  idPattern.test(key) ? key : createHash('sha256').update(key).digest('base64url');

function argumentsText(args: ToolArguments): JsonText {
  if (typeof args !== 'string' && !(args instanceof Uint8Array)) {
    const text = written(args);
    if (text?.[0] !== '{') throw invalid('args', 'is not an object', 'give an object, or the text of a JSON object');
    return text;
  }
  checkObject(args, 'arguments');
  return args;
}

function written(args: unknown): string | undefined {
  try {
    return JSON.stringify(args);
  } catch (cause) {
    throw invalid('args', 'cannot be written as JSON', 'give an object without cycles, functions and BigInts', cause);
  }
}

/** What a caller without types can get wrong, before it gets any further. */
function requireValid(server: unknown, tool: unknown, { deadlineMs, signal, idempotencyKey }: RemoteCallOptions): void {
  if (server !== undefined && !isName(server)) throw invalid('server', 'is not a name', 'give the name of a server');
  if (!isName(tool)) throw invalid('tool', 'is not a name', 'give the name of a tool');
  if (deadlineMs !== undefined && !(typeof deadlineMs === 'number' && !Number.isNaN(deadlineMs)))
    throw invalid('deadlineMs', 'is not a number', 'give the milliseconds the call may take, or leave it out');
  if (signal !== undefined && !isCancelSignal(signal))
    throw invalid('signal', 'is not an AbortSignal', 'give the signal of an AbortController');
  if (idempotencyKey !== undefined && !isText(idempotencyKey, idempotencyKeyCharsMax))
    throw invalid('idempotencyKey', `is not a text of 1 to ${idempotencyKeyCharsMax} characters`, 'give a shorter one');
}

const isText = (value: unknown, charsMax: number): boolean =>
  typeof value === 'string' && value.length > 0 && value.length <= charsMax;
const isName = (value: unknown): boolean => isText(value, nameCharsMax);

/** Of the way, or of the moment: the next try may do better. A host that answers anything else will answer so again. */
const passing: ReadonlySet<ErrorCode> = new Set(['transport', 'timeout', 'connect_failed', 'cancelled', 'expired']);
const isHopeless = ({ code, retryable }: HostError): boolean => !retryable && !passing.has(code);

const notConnected = (cause: HostError | undefined): HostError =>
  new HostError('connect_failed', cause ? `not connected: ${cause.message}` : 'not connected to the broker in time', {
    execution: 'not_executed',
    hint: cause?.hint ?? 'see whether the broker and the host run and can be reached',
    cause,
  });

const invalid = (field: string, what: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_arguments', `${field} ${what}`, { field, execution: 'not_executed', hint, cause });
