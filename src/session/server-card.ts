/**
 * MCP server cards: JSON documents, at a URL or in a file, that describe a server and its tools without a start. A card is only
 * a claim: its tools are shown, never trusted, and never compared with the list of the server.
 * Not here: the choice of cards, and their visibility for clients (catalog/).
 *
 * Invariants: concurrent reads of one source share one read, and a card is cached for five minutes. At most 1 MiB is read. A
 * URL has ten seconds per try; reading a file cannot be cancelled and has no time limit. Callers get copies.
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
import { checkObject } from '../wire/json-edit.js';
import { memberBytes, memberString } from '../wire/json-members.js';
import { eachElement } from '../wire/json-scan.js';
import type { ListedItem } from './lists.js';

export interface ServerCard {
  readonly source: string;
  readonly name: string | undefined;
  readonly description: string | undefined;
  /** Tools with a name. */
  readonly tools: readonly ListedItem[];
  readonly raw: Buffer;
}

interface ServerCardParts {
  readonly clock: Clock;
  readonly random: Random;
  /** Names the proxy and the certificate authorities. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Redacts and neutralises text that an error quotes. */
  readonly clean: (text: string) => string;
  readonly fetch?: (request: DocumentRequest) => Promise<Buffer>;
}

const cachedMs = 5 * 60_000;
const fetchMs = 10_000;
const cardBytesMax = 1024 * 1024;
const cachedMax = 256;
const concurrentReadsMax = 64;

const wellKnownPart = '/.well-known/';
const wellKnownPath = '/.well-known/mcp-card';

/** A URL, a path, or the name of a JSON file. */
export const isCardSource = (text: string): boolean => isUrl(text) || /[\\/]/.test(text) || text.endsWith('.json');

const isUrl = (text: string): boolean => /^https?:\/\//i.test(text);

export class ServerCards {
  readonly #parts: ServerCardParts;
  readonly #fetch: (request: DocumentRequest) => Promise<Buffer>;
  readonly #cache = new Map<string, { readonly card: ServerCard; readonly untilMs: number }>();
  readonly #reading = new Map<string, Promise<ServerCard>>();

  constructor(parts: ServerCardParts) {
    this.#parts = parts;
    this.#fetch = parts.fetch ?? ((request) => fetchDocument(request, parts));
  }

  /** Rejects with a HostError whose reason is `io` (a file), `http` (a URL) or `parse`. */
  async read(source: string): Promise<ServerCard> {
    const cached = this.#cache.get(source);
    if (cached && this.#parts.clock.nowMs() < cached.untilMs) return copyOf(cached.card);
    const reading = this.#reading.get(source) ?? this.#begin(source);
    return copyOf(await reading);
  }

  #begin(source: string): Promise<ServerCard> {
    if (this.#reading.size >= concurrentReadsMax) return Promise.reject(tooMany());
    const { clock } = this.#parts;
    const reading = this.#load(source)
      .then((card) => {
        setBounded(this.#cache, source, { card, untilMs: clock.nowMs() + cachedMs }, cachedMax);
        return card;
      })
      .finally(() => this.#reading.delete(source));
    this.#reading.set(source, reading);
    return reading;
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
        hint: 'check the URL of the card, and that this machine can reach it',
        cause,
      });
    }
  }

  async #readFile(file: string): Promise<Buffer> {
    try {
      // Checked first: opening a named pipe would wait for a writer.
      if (!(await stat(file)).isFile()) throw Object.assign(new Error('not a file'), { code: 'not_a_file' });
      return await readWhole(file);
    } catch (cause) {
      throw this.#unusable(file, 'io', `could not be read (${codeOf(cause)})`, {
        hint: 'check the path of the card; a relative path starts in the working directory of Hostler',
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
      throw this.#unusable(source, 'parse', 'is not a JSON object', { hint: 'correct the JSON of the card', cause });
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

/** The query may contain a secret. */
const withoutQuery = (source: string): string => (isUrl(source) ? (source.split(/[?#]/)[0] as string) : source);

const codeOf = (error: unknown): string => String((error as { code?: unknown }).code ?? 'unknown');

const copyOf = (card: ServerCard): ServerCard => ({
  ...card,
  tools: copyItems(card.tools),
  raw: Buffer.from(card.raw),
});

const tooMany = (): HostError =>
  new HostError('overloaded', `${concurrentReadsMax} server cards are already being read`, {
    limit: concurrentReadsMax,
    reason: 'cards',
    execution: 'not_executed',
    hint: 'try again in a moment',
  });
