/**
 * Server cards: a small JSON document in which a server describes itself and its tools, so that it can be described without
 * being started. It lies at a URL or in a file, as the operator says.
 * What a card says is a claim: its tools are shown, never trusted, and never held against what the server lists.
 * Not here: whose card is looked up, and who may see its tools (host/).
 *
 * Invariants: a source is read once for all who ask at the same time, and at most once in five minutes while it can be read;
 * no more than 1 MiB of it; a URL for no longer than ten seconds per try. A file takes as long as its disk does, since nothing
 * can call a read off: its source stays taken until then. Nobody holds the bytes that are kept, only copies.
 */
import { open, stat } from 'node:fs/promises';
import { setBounded } from '../kernel/bounded-map.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { Random } from '../kernel/random.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { copyItems } from '../policy/operation.js';
import { type DocumentRequest, fetchDocument } from '../transports/http/fetch-document.js';
import { memberBytes, memberString } from '../wire/json-members.js';
import { eachElement } from '../wire/json-scan.js';
import { checkObject } from '../wire/json-text.js';
import type { ListedItem } from './lists.js';

export interface ServerCard {
  /** As it was asked for. */
  readonly source: string;
  readonly name: string | undefined;
  readonly description: string | undefined;
  /** Those that have a name, as the card has them. */
  readonly tools: readonly ListedItem[];
  /** The whole card. */
  readonly raw: Buffer;
}

export interface ServerCardParts {
  readonly clock: Clock;
  readonly random: Random;
  /** Redacts and neutralises what is quoted. */
  readonly clean: (text: string) => string;
  readonly fetch?: (request: DocumentRequest) => Promise<Buffer>;
}

const keptMs = 5 * 60_000;
const fetchMs = 10_000;
const cardBytesMax = 1024 * 1024;
/** Past it the oldest is forgotten. */
const cardsMax = 256;
/** Sources that are read at the same time. */
const readsMax = 64;

const wellKnownPart = '/.well-known/';
const wellKnownPath = '/.well-known/mcp-card';

/** What is read as it is unless a server goes by that name: a URL, a path, or a file by its ending. */
export const isCardSource = (text: string): boolean => isUrl(text) || /[\\/]/.test(text) || text.endsWith('.json');

const isUrl = (text: string): boolean => /^https?:\/\//i.test(text);

export class ServerCards {
  readonly #parts: ServerCardParts;
  readonly #fetch: (request: DocumentRequest) => Promise<Buffer>;
  readonly #kept = new Map<string, { readonly card: ServerCard; readonly untilMs: number }>();
  readonly #reading = new Map<string, Promise<ServerCard>>();

  constructor(parts: ServerCardParts) {
    this.#parts = parts;
    this.#fetch = parts.fetch ?? ((request) => fetchDocument(request, parts));
  }

  /** Rejects with a HostError whose reason is `io` (a file), `http` (a URL) or `parse`. */
  async read(source: string): Promise<ServerCard> {
    const kept = this.#kept.get(source);
    if (kept && this.#parts.clock.nowMs() < kept.untilMs) return copyOf(kept.card);
    const reading = this.#reading.get(source) ?? this.#begin(source);
    return copyOf(await reading);
  }

  #begin(source: string): Promise<ServerCard> {
    if (this.#reading.size >= readsMax) return Promise.reject(tooMany());
    const reading = this.#load(source)
      .then((card) => this.#keep(card))
      .finally(() => this.#reading.delete(source));
    this.#reading.set(source, reading);
    return reading;
  }

  #keep(card: ServerCard): ServerCard {
    const { clock } = this.#parts;
    setBounded(this.#kept, card.source, { card, untilMs: clock.nowMs() + keptMs }, cardsMax);
    return card;
  }

  async #load(source: string): Promise<ServerCard> {
    if (!isUrl(source)) return this.#parse(source, await this.#readFile(source));
    try {
      return this.#parse(source, await this.#get(source));
    } catch (error) {
      const elsewhere = wellKnownOf(source);
      if (elsewhere === undefined) throw error;
      return this.#parse(source, await this.#get(elsewhere));
    }
  }

  async #get(url: string): Promise<Buffer> {
    const { clock } = this.#parts;
    const request = { what: 'the server card', url, deadlineAtMs: clock.nowMs() + fetchMs, bytesMax: cardBytesMax };
    try {
      return await this.#fetch(request);
    } catch (cause) {
      const facts = isHostError(cause) ? cause.details : {};
      const why = facts.httpStatus === undefined ? (facts.reason ?? codeOf(cause)) : `status ${facts.httpStatus}`;
      throw this.#unusable(url, 'http', `could not be fetched (${why})`, {
        ...(facts.httpStatus === undefined ? {} : { httpStatus: facts.httpStatus }),
        hint: 'check the URL of the card, and that it can be reached from here',
        cause,
      });
    }
  }

  async #readFile(file: string): Promise<Buffer> {
    try {
      // Asked first: opening a pipe would wait for somebody to write into it.
      if (!(await stat(file)).isFile()) throw Object.assign(new Error('not a file'), { code: 'not_a_file' });
      return await readWhole(file);
    } catch (cause) {
      throw this.#unusable(file, 'io', `could not be read (${codeOf(cause)})`, {
        hint: 'check the path of the card; relative ones start where Hostler was started',
        cause,
      });
    }
  }

  #parse(source: string, bytes: Buffer): ServerCard {
    const hasMark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    const raw = Buffer.from(hasMark ? bytes.subarray(3) : bytes);
    try {
      checkObject(raw, 'card');
    } catch (cause) {
      throw this.#unusable(source, 'parse', 'is not a JSON object', { hint: 'correct the card', cause });
    }
    const info = memberBytes(raw, 'serverInfo');
    return {
      source,
      name: memberString(raw, 'name') ?? (info && memberString(info, 'name')),
      description: memberString(raw, 'description'),
      tools: toolsOf(raw),
      raw,
    };
  }

  #unusable(source: string, reason: 'io' | 'http' | 'parse', what: string, options: HostErrorOptions): HostError {
    const shown = neutraliseLine(this.#parts.clean(withoutQuery(source)), LIMITS.quotedChars);
    const code = reason === 'parse' ? 'protocol_error' : 'connect_failed';
    return new HostError(code, `the server card '${shown}' ${what}`, { ...options, reason, execution: 'not_executed' });
  }
}

function toolsOf(card: Buffer): ListedItem[] {
  const array = memberBytes(card, 'tools');
  const tools: ListedItem[] = [];
  if (!array) return tools;
  eachElement(array, 0, array.length, 0, (start, end) => {
    const raw = array.subarray(start, end);
    const key = raw[0] === 0x7b ? memberString(raw, 'name') : undefined;
    if (key !== undefined && key !== '') tools.push({ key, raw });
    return undefined;
  });
  return tools;
}

/** Where else a card may lie, below the URL that was given. */
function wellKnownOf(source: string): string | undefined {
  if (source.includes(wellKnownPart) || !URL.canParse(source)) return undefined;
  const url = new URL(source);
  url.pathname = url.pathname.replace(/\/$/, '') + wellKnownPath;
  return url.href;
}

async function readWhole(path: string): Promise<Buffer> {
  await using file = await open(path, 'r');
  const bytes = Buffer.alloc(cardBytesMax + 1);
  let length = 0;
  for (;;) {
    const { bytesRead } = await file.read(bytes, length, bytes.length - length);
    if (bytesRead === 0) return bytes.subarray(0, length);
    length += bytesRead;
    if (length > cardBytesMax) throw Object.assign(new Error('too large'), { code: 'too_large' });
  }
}

/** What stands there may be a secret. */
const withoutQuery = (source: string): string => (isUrl(source) ? (source.split(/[?#]/)[0] as string) : source);

const codeOf = (error: unknown): string => String((error as { code?: unknown }).code ?? 'unknown');

const copyOf = (card: ServerCard): ServerCard => ({
  ...card,
  tools: copyItems(card.tools),
  raw: Buffer.from(card.raw),
});

const tooMany = (): HostError =>
  new HostError('overloaded', `${readsMax} server cards are being read already`, {
    limit: readsMax,
    reason: 'cards',
    execution: 'not_executed',
    hint: 'try again in a moment',
  });
