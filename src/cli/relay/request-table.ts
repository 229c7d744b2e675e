/**
 * The data that a relay needs to replace a lost host: the open requests of its client, the questions of the host, and the messages
 * that set up or changed its legacy session.
 * Not here: the connection (relay-state.ts), reading and writing (relay.ts).
 * Invariants:
 * - Lines are recorded and never changed. A `tools/call` that was handed over is answered once, and never sent again.
 * - A request is recorded if and only if the host answers it with its id.
 * - An answer to a question of an earlier host reaches no later host.
 * - Open requests have a bound, which one batch may exceed; stored lines have a bound of bytes.
 */
import { InboundLines } from '../../gateway/stdio/inbound-lines.js';
import { HostError } from '../../kernel/errors.js';
import { FreshMap } from '../../kernel/fresh-map.js';
import { hasBatches } from '../../session/eras/legacy/revisions.js';
import { META, SUBSCRIPTION_ID } from '../../session/eras/modern/protocol.js';
import { Envelope } from '../../wire/envelope.js';
import { memberBytes, memberString, memberText } from '../../wire/json-members.js';
import { eachElement } from '../../wire/json-scan.js';
import { listenMethod, METHODS, NOTIFICATION } from '../../wire/methods.js';
import { failureAnswer } from './failure-answer.js';

/** True if such a request may be sent again to a new host. */
const isRepeatable = (method: string): boolean => METHODS.get(method)?.isRepeatable === true;
/** Members of the filter of a listen stream, and the notifications that they grant. */
const listenFlags = [
  ['toolsListChanged', NOTIFICATION.toolsChanged],
  ['promptsListChanged', NOTIFICATION.promptsChanged],
  ['resourcesListChanged', NOTIFICATION.resourcesChanged],
] as const;
const listChanges: Readonly<Record<string, string>> = {
  'tools/list': NOTIFICATION.toolsChanged,
  'prompts/list': NOTIFICATION.promptsChanged,
  'resources/list': NOTIFICATION.resourcesChanged,
};

const storedBytesMax = 16 * 1024 * 1024;
const subscriptionsMax = 10_000;
const questionsMax = 1_000;
/** Maximum of open requests: the host handles 1,000 of a client and delays 3,200 refusals; 800 more may be in transit. */
const openMax = 5_000;
const OPEN_BRACKET = 0x5b;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
/** Every answer and question of the host starts with this text. */
const idPrefix = Buffer.from('{"jsonrpc":"2.0","id":');
const ownPrefix = Buffer.from('{"hostler":');
/** A line with which the host withdraws a question starts with this text, followed by the params. */
const withdrawnPrefix = Buffer.from(`{"jsonrpc":"2.0","method":"${NOTIFICATION.cancelled}","params":`);
/** A line with which the host opens a listen stream starts with this text, followed by the params. */
const acknowledgedPrefix = Buffer.from(
  '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":',
);
const modernMark = Buffer.from(`"${META.version}"`);
/** Start of the ids of requests with which the relay repeats a session. Their answers are not forwarded. */
const replayId = '"hostler-relay-';

interface OpenRequest {
  readonly method: string;
  readonly isModern: boolean;
  readonly tool: string | undefined;
  /** The line, for a request that can be sent again. */
  line: Buffer | undefined;
  /** Params of a request that changes the session. */
  readonly params: Buffer | undefined;
  /** Number of requests with this id that were handed over. The host answers each of them. */
  count: number;
}

/** `drop`: the line answers a question of an earlier host. */
export type ClientLine = 'forward' | 'drop' | { readonly answer: string };
/** `own`: a message to the relay itself. `after`: the line is forwarded, and then these lines. */
export type HostLine = 'forward' | 'swallow' | 'own' | { readonly after: readonly string[] };

export interface Settled {
  /** Lines for the client. */
  readonly answers: readonly string[];
  /** Lines for the next host. */
  readonly again: readonly Buffer[];
}

export class RequestTable {
  readonly #lines = new InboundLines({
    message: (envelope) => {
      this.#isForwarded = this.#message(envelope, false);
    },
    fault: () => {},
    batch: (bytes, bounds) => this.#batch(bytes, bounds),
  });
  #isForwarded = true;
  /** Position of the line that is read. */
  #bytes: Buffer = Buffer.alloc(0);
  #start = 0;
  #end = 0;
  readonly #open = new FreshMap<string, OpenRequest>();
  readonly #questions = new Set<string>();
  readonly #subscriptions = new Map<string, Buffer>();
  readonly #listed = new Set<string>();
  /** Ids of listen streams that the next host has to open again. */
  #reopening = new Set<string>();
  #initialize: Buffer | undefined;
  #isInitialized = false;
  #hasBatches = false;
  #level: Buffer | undefined;
  #storedBytes = 0;
  /** Number of open requests that share their id with another one. */
  #repeats = 0;

  get size(): number {
    return this.#open.size + this.#repeats;
  }

  /** Records a line that is about to be handed to the host. */
  fromClient(bytes: Buffer, start: number, end: number): ClientLine {
    if (this.size >= openMax) {
      const answer = this.refuse(bytes.subarray(start, end), tooMany(this.size));
      if (answer !== undefined) return { answer };
    }
    this.#bytes = bytes;
    this.#start = start;
    this.#end = end;
    this.#isForwarded = true;
    this.#lines.line(bytes, start, end);
    return this.#isForwarded ? 'forward' : 'drop';
  }

  /** Returns false for an answer to a question of an earlier host. */
  #message(envelope: Envelope, isInBatch: boolean): boolean {
    if (envelope.kind === 'request') this.#request(envelope, isInBatch);
    else if (envelope.kind === 'notification') this.#notification(envelope);
    else return this.#questions.delete(envelope.idText() ?? '');
    return true;
  }

  /** Without batches in the revision, the host refuses a batch with one answer without an id, so its requests are not recorded. */
  #batch(bytes: Buffer, bounds: readonly number[]): void {
    if (!this.#hasBatches) return;
    this.#isForwarded = false;
    for (let i = 0; i < bounds.length; i += 2) {
      const read = this.#lines.readOne(bytes, bounds[i] as number, bounds[i + 1] as number);
      if (!(read instanceof Envelope) || this.#message(read, true)) this.#isForwarded = true;
    }
  }

  /** Requests of a batch are answered together, so none of them is sent again alone. */
  #request(envelope: Envelope, isInBatch: boolean): void {
    const idText = envelope.idText() as string;
    const other = this.#open.get(idText);
    if (other) return this.#repeatedId(other);
    const [bytes, start, end] = [this.#bytes, this.#start, this.#end];
    const method = envelope.method();
    const params = envelope.payload();
    const isCall = method === 'tools/call';
    if (method === 'initialize')
      this.#hasBatches = hasBatches((params && memberString(params, 'protocolVersion')) ?? '');
    const canRepeat = !isInBatch && isRepeatable(method) && this.#storedBytes + end - start <= storedBytesMax;
    const line = canRepeat ? Buffer.from(bytes.subarray(start, end)) : undefined;
    if (line) this.#storedBytes += line.length;
    this.#open.set(idText, {
      ...{ method, line, count: 1 },
      isModern: isCall && (params?.includes(modernMark) ?? false),
      tool: isCall && params ? memberString(params, 'name') : undefined,
      params: line && params && sessionMethods.has(method) ? Buffer.from(params) : undefined,
    });
  }

  /** The host may answer either of the two first, so neither is sent again. */
  #repeatedId(request: OpenRequest): void {
    request.count++;
    this.#repeats++;
    this.#storedBytes -= request.line?.length ?? 0;
    request.line = undefined;
  }

  #notification(envelope: Envelope): void {
    const method = envelope.method();
    if (method === NOTIFICATION.initialized) this.#isInitialized = true;
    if (method !== NOTIFICATION.cancelled) return;
    const params = envelope.payload();
    const idText = params && memberText(params, 'requestId');
    // A cancelled request gets no answer.
    if (idText !== undefined && this.#open.get(idText)?.method !== 'initialize') this.#close(idText);
  }

  /** Records a line of the host. */
  fromHost(bytes: Buffer, start: number, end: number): HostLine {
    if (startsWith(bytes, start, end, idPrefix)) return this.#withId(bytes, start + idPrefix.length, end);
    if (startsWith(bytes, start, end, ownPrefix)) return 'own';
    if (startsWith(bytes, start, end, withdrawnPrefix)) this.#withdrawn(bytes, start + withdrawnPrefix.length, end);
    else if (this.#reopening.size > 0 && startsWith(bytes, start, end, acknowledgedPrefix))
      return this.#reopened(bytes.subarray(start + acknowledgedPrefix.length, end - 1));
    else if (bytes[start] === OPEN_BRACKET)
      eachElement(bytes, start, end, 0, (from, to) => {
        if (startsWith(bytes, from, to, idPrefix)) this.#withId(bytes, from + idPrefix.length, to);
        return true;
      });
    return 'forward';
  }

  #withId(bytes: Buffer, idStart: number, end: number): HostLine {
    const idEnd = endOfId(bytes, idStart, end);
    const idText = bytes.toString('utf8', idStart, idEnd);
    // The letter after `,"` is the first of `method`, `result` or `error`.
    const kind = bytes[idEnd + 2];
    if (kind === 0x6d) this.#asked(idText);
    else if (idText.startsWith(replayId)) return 'swallow';
    else this.#answered(idText, kind === 0x72);
    return 'forward';
  }

  /** If there are too many questions, the oldest is forgotten, and its answer will be dropped. */
  #asked(idText: string): void {
    const [oldest] = this.#questions;
    if (oldest !== undefined && this.#questions.size >= questionsMax) this.#questions.delete(oldest);
    this.#questions.add(idText);
  }

  #withdrawn(bytes: Buffer, start: number, end: number): void {
    // The last byte closes the message, not the params.
    this.#questions.delete(memberText(bytes.subarray(start, end - 1), 'requestId') ?? '');
  }

  /** The new host cannot know which changes the client has missed, so each granted list counts as changed. */
  #reopened(params: Buffer): HostLine {
    const meta = memberBytes(params, '_meta');
    const idText = meta && memberText(meta, SUBSCRIPTION_ID);
    const granted = memberBytes(params, 'notifications');
    if (idText === undefined || granted === undefined || !this.#reopening.delete(idText)) return 'forward';
    const kinds = listenFlags.filter(([flag]) => memberText(granted, flag) === 'true');
    return { after: kinds.map(([, method]) => notification(method, `{"_meta":{"${SUBSCRIPTION_ID}":${idText}}}`)) };
  }

  #answered(idText: string, isResult: boolean): void {
    const request = this.#close(idText);
    if (!request) return;
    const { method, params } = request;
    if (!isResult && method === 'initialize' && !this.#initialize) this.#hasBatches = false;
    if (!isResult) return;
    if (Object.hasOwn(listChanges, method)) this.#listed.add(method);
    if (params) this.#changeSession(method, params);
  }

  /** Returns undefined if no request has this id, or if another one with this id remains open. */
  #close(idText: string): OpenRequest | undefined {
    const request = this.#open.get(idText);
    if (!request) return undefined;
    if (--request.count > 0) {
      this.#repeats--;
      return undefined;
    }
    this.#open.delete(idText);
    if (request.line) this.#storedBytes -= request.line.length;
    return request;
  }

  #changeSession(method: string, params: Buffer): void {
    if (method === 'initialize') this.#initialize = params;
    else if (method === 'logging/setLevel') this.#level = params;
    else {
      const uri = memberText(params, 'uri') ?? '';
      if (method === 'resources/unsubscribe') this.#subscriptions.delete(uri);
      else if (this.#subscriptions.size < subscriptionsMax) this.#subscriptions.set(uri, params);
    }
  }

  /**
   * Empties the table after the loss of a host. Requests that a new host may answer are returned as lines; the others are answered. If
   * the client sends no more, there is no new host: every request is answered, except listen streams, which simply end.
   */
  settle(isInputEnded = false): Settled {
    const answers: string[] = [];
    const again: Buffer[] = [];
    this.#reopening.clear();
    for (const [idText, { line, method, tool, isModern, count }] of this.#open.entries()) {
      const isStream = line !== undefined && method === listenMethod;
      if (isInputEnded) {
        if (isStream) continue;
        const error = isRepeatable(method) ? unanswered() : lost(tool);
        for (let n = 0; n < count; n++) answers.push(failureAnswer(idText, method, isModern, error));
      } else if (line) {
        again.push(line);
        if (isStream) this.#reopening.add(idText);
      } else for (let n = 0; n < count; n++) answers.push(failureAnswer(idText, method, isModern, lost(tool)));
    }
    for (const idText of this.#questions)
      answers.push(`{"jsonrpc":"2.0","method":"${NOTIFICATION.cancelled}","params":{"requestId":${idText}}}`);
    this.#open.clear();
    this.#repeats = 0;
    this.#questions.clear();
    this.#storedBytes = 0;
    return { answers, again };
  }

  /** Messages that repeat the legacy session to a new host. */
  replay(): readonly string[] {
    if (!this.#initialize) return [];
    let count = 0;
    const request = (method: string, params: Buffer) =>
      `{"jsonrpc":"2.0","id":${replayId}${++count}","method":"${method}","params":${params.toString('utf8')}}`;
    return [
      request('initialize', this.#initialize),
      ...(this.#isInitialized ? [notification(NOTIFICATION.initialized)] : []),
      ...(this.#level ? [request('logging/setLevel', this.#level)] : []),
      ...[...this.#subscriptions.values()].map((params) => request('resources/subscribe', params)),
    ];
  }

  /** Tells a legacy client to read again the lists that it has from the old host. */
  changes(): readonly string[] {
    if (!this.#initialize || !this.#isInitialized) return [];
    return [...this.#listed].map((method) => notification(listChanges[method] as string));
  }

  /** Returns the answer to a line that no host gets; undefined if the line needs none. */
  refuse(line: Buffer, error: HostError): string | undefined {
    const answers: string[] = [];
    let isBatch = false;
    const message = (envelope: Envelope) => {
      if (envelope.kind !== 'request') return;
      const isModern = envelope.payload()?.includes(modernMark) ?? false;
      answers.push(failureAnswer(envelope.idText() as string, envelope.method(), isModern, error));
    };
    const lines = new InboundLines({
      ...{ message, fault: () => {} },
      batch: (bytes, bounds) => {
        isBatch = true;
        for (let i = 0; i < bounds.length; i += 2) {
          const read = lines.readOne(bytes, bounds[i] as number, bounds[i + 1] as number);
          if (read instanceof Envelope) message(read);
        }
      },
    });
    lines.line(line, 0, line.length);
    if (answers.length === 0) return undefined;
    return isBatch ? `[${answers.join()}]` : answers[0];
  }
}

const sessionMethods: ReadonlySet<string> = new Set([
  ...['initialize', 'logging/setLevel', 'resources/subscribe', 'resources/unsubscribe'],
]);

const notification = (method: string, params?: string): string =>
  `{"jsonrpc":"2.0","method":"${method}"${params === undefined ? '' : `,"params":${params}`}}`;

const tooMany = (inProgress: number): HostError =>
  new HostError('overloaded', `${inProgress} requests of this client are in progress`, {
    ...{ reason: 'exchanges', execution: 'not_executed', limit: openMax },
    hint: 'wait for answers before sending more requests',
  });

const lost = (tool: string | undefined): HostError =>
  new HostError(
    'outcome_uncertain',
    'the connection to Hostler ended while the request was running; it may have been executed',
    {
      ...(tool === undefined ? {} : { tool }),
      reason: 'host_lost',
      execution: 'uncertain',
      hint: 'check whether the request took effect before you send it again',
    },
  );

const unanswered = (): HostError =>
  new HostError(
    'cancelled',
    'the connection to Hostler ended before the request was answered; it is not sent again, because the client closed its input',
    { reason: 'host_lost' },
  );

function startsWith(bytes: Buffer, start: number, end: number, prefix: Buffer): boolean {
  return end - start > prefix.length && bytes.compare(prefix, 0, prefix.length, start, start + prefix.length) === 0;
}

function endOfId(bytes: Buffer, start: number, end: number): number {
  if (bytes[start] !== QUOTE) {
    const comma = bytes.indexOf(COMMA, start);
    return comma < 0 ? end : comma;
  }
  let at = start + 1;
  while (at < end && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1;
  return at + 1;
}
