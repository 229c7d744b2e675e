/**
 * Parses how to reach one server: `unknown` → a frozen ServerSpec, or an `invalid_spec` error that names the field.
 * The shape is the `mcpServers` entry of MCP clients. Unknown keys are refused: a key without effect would mislead.
 */
import * as z from 'zod/mini';
import { type HostError, joinFaults } from '../kernel/errors.js';
import { nearestName } from '../kernel/nearest-name.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { authEntry } from './auth-settings.js';
import { copyEntry } from './copy-config.js';
import { invalidSpec } from './invalid-spec.js';
import { firstIssue, issuesOf, refuseProto } from './schema-issues.js';

const name = z
  .string()
  .check(z.regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'use 1 to 64 letters, digits, dots, dashes or underscores'));

const noNul = (field: string, max: number) =>
  z.string().check(
    z.refine((text) => !text.includes('\0'), `${field} must not contain NUL`),
    z.maxLength(max, 'is too long'),
  );
const path = (field: string) => noNul(field, 4_096).check(z.minLength(1, 'must not be empty'));

/** Linux limits one argument or variable to 128 KiB. */
const argCharsMax = 128 * 1024;

const paths = (field: string) => z._default(z.array(path(field)).check(z.maxLength(100, 'has too many entries')), []);

export const stdio = z.strictObject({
  name,
  command: path('command'),
  args: z._default(z.array(noNul('args', argCharsMax)).check(z.maxLength(1_000, 'has too many entries')), []),
  env: z._default(
    z.record(
      z.string().check(z.regex(/^[^=\0]{1,256}$/, 'is not a variable name')),
      // Null: the variable is not set, even if Hostler has it.
      z.union([noNul('env', argCharsMax), z.null()], 'must be a text, or null if it is not set'),
    ),
    {},
  ),
  cwd: z.optional(path('cwd')),
  sandbox: z._default(z.enum(['group', 'standard']), 'group'),
  readablePaths: paths('readablePaths'),
  writablePaths: paths('writablePaths'),
});

const keysCompared = 100;
const keyCharsShown = 64;

const hostAlone = /^((?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}|localhost)(?::\d{1,5})?(?:\/|$)/i;

/** Quotes only the host, because a path or a query may contain a secret. */
function notAUrl(input: unknown): string {
  const host = typeof input === 'string' ? hostAlone.exec(input)?.[1] : undefined;
  return host === undefined
    ? 'must be an http or https URL, such as https://example.com/mcp'
    : `must be an http or https URL: write https://${host} instead of ${host}`;
}

/** The entry has neither `command` nor `url`; one of its keys may be a typing mistake. */
function unreachable(entry: object): string {
  const needed = 'needs a command (stdio) or a url (HTTP)';
  for (const key of Object.keys(entry).slice(0, keysCompared)) {
    const near = nearestName(key, ['command', 'url']);
    if (near !== undefined) return `${needed}: write '${near}' instead of '${neutraliseLine(key, keyCharsShown)}'`;
  }
  return needed;
}

function hasNoLogin(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

export const http = z.strictObject({
  name,
  // `abort`: a refinement also runs after a failed check, and `new URL` throws for an invalid URL.
  url: z
    .url({ protocol: /^https?$/, error: ({ input }) => notAUrl(input), abort: true })
    .check(z.refine(hasNoLogin, 'must not carry a user name or password; use headers')),
  headers: z._default(
    z.record(
      z.string().check(z.regex(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/, 'is not a header name')),
      z.string().check(z.regex(/^[\t\x20-\x7e\x80-\xff]{0,8192}$/, 'must be one line of printable text')),
    ),
    {},
  ),
  transport: z._default(z.enum(['auto', 'streamable-http', 'http-sse']), 'auto'),
  auth: z.optional(authEntry),
});

export type StdioServerSpec = Readonly<z.infer<typeof stdio>>;
export type HttpServerSpec = Readonly<z.infer<typeof http>>;
export type ConfiguredServerSpec = StdioServerSpec | HttpServerSpec;

/** A server that the embedder attached. A configuration cannot contain one. */
export interface AttachedServerSpec {
  readonly name: string;
  readonly transport: 'attached';
  /** True if a factory makes an object for each start. Otherwise the server can start only once. */
  readonly hasFactory: boolean;
  /** Returns the object or a promise of it. JSON and comparisons skip a function, so they do not read the object. */
  readonly take: () => unknown;
}

export type ServerSpec = ConfiguredServerSpec | AttachedServerSpec;

export const isStdio = (spec: ServerSpec): spec is StdioServerSpec => 'command' in spec;
export const isAttached = (spec: ServerSpec): spec is AttachedServerSpec => 'take' in spec;

export const isOneShot = (spec: ServerSpec): boolean => isAttached(spec) && !spec.hasFactory;

export function checkServerName(value: unknown): asserts value is string {
  const parsed = name.safeParse(value);
  if (!parsed.success) throw invalid('name', firstIssue(parsed.error).what);
}

export function parseServerSpec(given: unknown): ConfiguredServerSpec {
  const input = copyEntry(given, 'the definition');
  const isObject = typeof input === 'object' && input !== null;
  const isHttp = isObject && Object.hasOwn(input, 'url');
  if (isObject && Object.hasOwn(input, 'command') === isHttp)
    throw invalid('', isHttp ? 'has a command (stdio) and a url (HTTP): keep one of them' : unreachable(input));
  if (isObject && !isHttp && Object.hasOwn(input, 'auth'))
    throw invalid('auth', 'is for servers with a url; a program gets its credentials through env');
  refuseProto(input, ['env', 'headers', 'auth.authorizeParams', 'auth.tokenParams'], (field) =>
    invalid(field, 'is not a valid name'),
  );
  const parsed = (isHttp ? http : stdio).safeParse(input);
  if (parsed.success) {
    refuseTwoTokens(parsed.data);
    return freeze(parsed.data);
  }
  throw joinFaults(issuesOf(parsed.error).map(({ field, what }) => invalid(field, what)));
}

/** Refuses a configured header that would replace the token of every login. */
function refuseTwoTokens(spec: ConfiguredServerSpec): void {
  if (isStdio(spec) || spec.auth === undefined || spec.auth.grant === 'none') return;
  const header = tokenHeaderOf(spec);
  if (header === undefined) return;
  throw invalid(`headers.${header}`, 'cannot be used together with auth: remove it, or set auth.grant to "none"');
}

/** Returns the name of the header that replaces a login, as written. */
export const tokenHeaderOf = ({ headers }: HttpServerSpec): string | undefined =>
  Object.keys(headers).find((name) => name.toLowerCase() === 'authorization');

function freeze<T extends object>(spec: T): T {
  for (const value of Object.values(spec)) if (typeof value === 'object' && value !== null) freeze(value);
  return Object.freeze(spec);
}

const invalid = (field: string, problem: string): HostError =>
  invalidSpec(field, problem, 'correct the server’s definition and try again');
