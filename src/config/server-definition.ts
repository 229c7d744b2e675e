/**
 * Parses one entry of `mcpServers`: how to reach a server (server-spec.ts) and how to supervise it. `unknown` → a frozen
 * definition with all defaults, or an `invalid_spec` error that names the field.
 */
import * as z from 'zod/mini';
import { faultsOf, HostError, isHostError, joinFaults } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { copyEntry } from './copy-config.js';
import { unknownKeyText } from './known-keys.js';
import { issuesOf, refuseProto } from './schema-issues.js';
import { http, isStdio, parseServerSpec, type ServerSpec, stdio } from './server-spec.js';
import { type ToolRules, toolRules, toolRulesOf } from './tool-rules.js';
import { parseDuration } from './values.js';

type PinMode = 'block' | 'warn' | 'off';

export interface ServerDefinition {
  readonly name: string;
  /** The name as the configuration writes it; `name` is its slug. */
  readonly label: string;
  readonly spec: ServerSpec;
  readonly isEnabled: boolean;
  readonly isLazy: boolean;
  /** Idle time after which the server stops; 0 means never. */
  readonly keepAliveMs: number;
  readonly restart: { readonly max: number; readonly windowMs: number; readonly onExhausted: 'park' | 'eject' };
  readonly breaker: { readonly threshold: number; readonly resetMs: number };
  readonly timeouts: {
    /** Limit of the first start, which may download a package. */
    readonly firstStartMs: number;
    /** Limit of all other starts. */
    readonly startMs: number;
    readonly callMs: number;
  };
  readonly concurrency: number;
  readonly queueLength: number;
  /** `on` caches results that the server marks as cacheable. */
  readonly cache: 'on' | 'off';
  /** Effect on calls of new tools (`onFirstSight`) and of changed tools (`onChange`). */
  readonly pins: { readonly onFirstSight: PinMode; readonly onChange: PinMode };
  /** True if the operator trusts the annotations of this server's tools. */
  readonly trustAnnotations: boolean;
  /** URL or path of the card. */
  readonly card: string | undefined;
  /** `per-client` gives each client of the gateway its own instance. */
  readonly isolation: 'shared' | 'per-client';
  /** True: items of its lists that clients refuse are repaired or left out. */
  readonly repair: boolean;
  /** Offered tools and their names. */
  readonly tools: ToolRules;
  /** Mistake in the entry. The server is disabled until the entry is corrected. */
  readonly problem?: { readonly message: string; readonly hint: string | undefined };
}

/** An invalid entry. */
export interface UnusableServer {
  readonly error: HostError;
  readonly label: string;
}

/** How errors name an entry and its fields. */
export interface EntryPlace {
  /** Returns the full path of a field; `''` is the entry itself. */
  readonly fieldOf: (field: string) => string;
  /** Returns the first part of the message, for a path. */
  readonly textOf: (path: string) => string;
  readonly hint: string;
}

const nameCharsShown = 64;
/** Makes an unchecked name safe to print. */
const shown = (name: string): string => neutraliseLine(name, nameCharsShown);

const inConfiguration = (name: string): EntryPlace => ({
  fieldOf: (field) => `mcpServers.${shown(name)}${field === '' ? '' : `.${field}`}`,
  textOf: (path) => path,
  hint: 'correct this entry; the other servers are not affected',
});

const count = (min: number, max: number) =>
  z
    .int(`must be a whole number`)
    .check(z.minimum(min, `must be at least ${min}`), z.maximum(max, `must be at most ${max}`));
const duration = z.union([z.number(), z.string()]);
const cardCharsMax = 2_048;
const labelCharsMax = 1_024;
/** A text with a scheme must be an HTTP URL; any other text is a path. */
const isUsableCard = (text: string): boolean =>
  !/^[a-z][a-z0-9+.-]*:\/\//i.test(text) || (/^https?:/i.test(text) && URL.canParse(text));

/** Settings of supervision and policy. */
export const treatment = z.object({
  label: z.optional(
    z.string('must be a text').check(z.maxLength(labelCharsMax, `must be at most ${labelCharsMax} characters`)),
  ),
  enabled: z._default(z.boolean(), true),
  lazy: z.optional(z.boolean()),
  keepAlive: z._default(z.union([z.literal(0), z.literal('0'), duration]), '10m'),
  restart: z.prefault(
    z.strictObject({
      max: z._default(count(0, 1_000), 5),
      window: z._default(duration, '5m'),
      onExhausted: z._default(z.enum(['park', 'eject']), 'park'),
    }),
    {},
  ),
  breaker: z.prefault(
    z.strictObject({ threshold: z._default(count(1, 1_000), 5), reset: z._default(duration, '30s') }),
    {},
  ),
  timeouts: z.prefault(z.strictObject({ start: z.optional(duration), call: z._default(duration, '60s') }), {}),
  concurrency: z._default(count(1, 10_000), 64),
  queueLength: z._default(count(0, 100_000), 1_024),
  cache: z._default(z.enum(['on', 'off']), 'on'),
  pins: z.optional(z.enum(['block', 'warn', 'off'])),
  trustAnnotations: z._default(z.boolean(), false),
  card: z.optional(
    z.string().check(
      z.minLength(1, 'must not be empty'),
      z.maxLength(cardCharsMax, `must be at most ${cardCharsMax} characters`),
      z.refine((text) => !text.includes('\0'), 'must not contain a NUL'),
      z.refine(isUsableCard, 'must be an http:// or https:// URL, or a path'),
    ),
  ),
  isolation: z._default(z.enum(['shared', 'per-client']), 'shared'),
  repair: z._default(z.boolean(), true),
  tools: z.prefault(toolRules, {}),
});
export const treatmentKeys: ReadonlySet<string> = new Set(Object.keys(treatment.shape));
/** Keys of an entry. `envFile` is read with the placeholders (placeholders.ts), so a definition never has it. */
export const serverKeys: readonly string[] = [
  ...new Set([...Object.keys({ ...stdio.shape, ...http.shape }), ...treatmentKeys, 'envFile']),
].filter((key) => key !== 'name');

const packageRunner = /^(?:npx|npm|pnpm|yarn|bunx|uvx|uv|pipx)(?:\.cmd|\.exe)?$/;
export const isPackageRunner = (spec: ServerSpec): boolean =>
  isStdio(spec) && packageRunner.test(spec.command.split(/[\\/]/).at(-1) ?? '');

/** `lazyByDefault` is true for configured servers, which start on first use, and false for spawned servers. */
export function parseServerDefinition(
  name: string,
  given: unknown,
  lazyByDefault: boolean,
  place: EntryPlace = inConfiguration(name),
): ServerDefinition {
  const entry = copyEntry(given, place.fieldOf(''));
  if (typeof entry !== 'object' || entry === null) throw invalid(name, '', 'is not an object', place);
  refuseProto(entry, ['tools.rename'], (field) => invalid(name, field, 'is not a valid name', place));
  const own = Object.entries(entry).filter(([key]) => treatmentKeys.has(key));
  const reach = Object.fromEntries(Object.entries(entry).filter(([key]) => !treatmentKeys.has(key)));
  const faults: HostError[] = [];
  const attempt = <T>(parse: () => T): T | undefined => {
    try {
      return parse();
    } catch (error) {
      if (!isHostError(error)) throw error;
      faults.push(...faultsOf(error));
      return undefined;
    }
  };
  const spec = attempt(() => within(name, place, () => parseServerSpec({ ...reach, name })));
  // Without a spec, this finds the other faults of the entry; its result is not used.
  const definition = attempt(() =>
    definitionOf(spec ?? ({ name, command: name } as ServerSpec), Object.fromEntries(own), lazyByDefault, place),
  );
  if (!definition || faults.length > 0) throw joinFaults(faults);
  return definition;
}

const plans = new Map<string, object>();
const plansMax = 256;

/** Equal plans of different servers are one object. Most servers have the defaults, so this saves 176 bytes for each. */
function shared<T extends object>(plan: T): T {
  const text = JSON.stringify(plan);
  const known = plans.get(text);
  if (known) return known as T;
  Object.freeze(plan);
  if (plans.size < plansMax) plans.set(text, plan);
  return plan;
}

export function definitionOf(
  spec: ServerSpec,
  entry: Readonly<Record<string, unknown>>,
  lazyByDefault: boolean,
  place: EntryPlace,
): ServerDefinition {
  const { name } = spec;
  const parsed = treatment.safeParse(entry);
  if (!parsed.success)
    throw joinFaults(issuesOf(parsed.error).map(({ field, what }) => invalid(name, field, what, place)));
  const {
    label = name,
    enabled,
    lazy,
    keepAlive,
    restart,
    breaker,
    timeouts,
    concurrency,
    queueLength,
    cache,
    pins,
    trustAnnotations,
    card,
  } = parsed.data;
  const { isolation, repair } = parsed.data;
  const tools = toolRulesOf(parsed.data.tools, (field, what) => invalid(name, field, what, place));
  const ms = (value: string | number, field: string) => within(name, place, () => parseDuration(value, field));
  const startMs = ms(timeouts.start ?? '30s', 'timeouts.start');
  return Object.freeze({
    name,
    label,
    spec,
    isEnabled: enabled,
    isLazy: lazy ?? lazyByDefault,
    keepAliveMs: keepAlive === 0 || keepAlive === '0' ? 0 : ms(keepAlive, 'keepAlive'),
    restart: shared({
      max: restart.max,
      windowMs: ms(restart.window, 'restart.window'),
      onExhausted: restart.onExhausted,
    }),
    breaker: shared({ threshold: breaker.threshold, resetMs: ms(breaker.reset, 'breaker.reset') }),
    timeouts: shared({
      firstStartMs: timeouts.start === undefined && isPackageRunner(spec) ? 120_000 : startMs,
      startMs,
      callMs: ms(timeouts.call, 'timeouts.call'),
    }),
    concurrency,
    queueLength,
    cache,
    pins: shared({ onFirstSight: pins ?? 'warn', onChange: pins ?? 'block' }),
    trustAnnotations,
    card,
    isolation,
    repair,
    tools,
  });
}

/** Makes a disabled server from an invalid entry, so that `status`, `why` and calls report the mistake. Its command never runs. */
export function unusableDefinition(
  name: string,
  { error: { message, hint }, label }: UnusableServer,
): ServerDefinition {
  const { spec, ...rest } = parseServerDefinition('unusable', { command: 'unusable', enabled: false }, true);
  return Object.freeze({
    ...rest,
    name,
    label,
    spec: Object.freeze({ ...spec, name }),
    problem: Object.freeze({ message, hint }),
  });
}

/** Rethrows an error with the full path of its field. */
function within<T>(name: string, place: EntryPlace, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    if (!isHostError(error) || error.code !== 'invalid_spec') throw error;
    throw joinFaults(faultsOf(error).map(({ details, message }) => invalid(name, details.field ?? '', message, place)));
  }
}

function invalid(name: string, field: string, problem: string, { fieldOf, textOf, hint }: EntryPlace): HostError {
  const what = problem.startsWith(`${field}: `) ? problem.slice(field.length + 2) : problem;
  const text = what === 'is not known' ? unknownKeyText(field, serverKeys) : what;
  const path = fieldOf(field);
  return new HostError('invalid_spec', `${textOf(path)}: ${text}`, {
    server: shown(name),
    field: path,
    execution: 'not_executed',
    hint,
  });
}
