/**
 * Every way Hostler can fail, in one closed table, and the one class that carries it.
 * Callers branch on `code`; the text is for people. What a peer said is quoted only after redaction (redact.ts).
 * Not here: deciding what to do about a failure (policy, supervisor).
 */
import { thrownText } from './thrown-text.js';

/** May the same request be sent again as it is? `maybe` means: only when the error says `not_executed`. */
export type RetryAdvice = 'yes' | 'later' | 'no' | 'maybe';

interface ErrorFacts {
  /** HTTP status when the error ends a request of its own. */
  readonly http: number;
  /** JSON-RPC code. Ours lie outside -32768..-32000, the range the protocol keeps for itself. */
  readonly rpc: number;
  readonly retry: RetryAdvice;
}

export const ERRORS = {
  invalid_spec: { http: 400, rpc: -31001, retry: 'no' },
  invalid_request: { http: 400, rpc: -32600, retry: 'no' },
  invalid_arguments: { http: 400, rpc: -32602, retry: 'no' },
  unauthenticated: { http: 401, rpc: -31002, retry: 'no' },
  denied: { http: 403, rpc: -31003, retry: 'no' },
  budget_exceeded: { http: 429, rpc: -31004, retry: 'no' },
  server_not_found: { http: 404, rpc: -31005, retry: 'no' },
  tool_not_found: { http: 404, rpc: -32602, retry: 'no' },
  schema_changed: { http: 409, rpc: -31006, retry: 'no' },
  server_stopped: { http: 503, rpc: -31007, retry: 'no' },
  server_disabled: { http: 503, rpc: -31008, retry: 'no' },
  circuit_open: { http: 503, rpc: -31009, retry: 'later' },
  tool_throttled: { http: 429, rpc: -31010, retry: 'later' },
  server_parked: { http: 503, rpc: -31011, retry: 'later' },
  server_ejected: { http: 503, rpc: -31012, retry: 'no' },
  reconnecting: { http: 503, rpc: -31013, retry: 'yes' },
  needs_reauth: { http: 401, rpc: -31014, retry: 'no' },
  overloaded: { http: 503, rpc: -31015, retry: 'yes' },
  connect_failed: { http: 502, rpc: -31016, retry: 'maybe' },
  transport: { http: 502, rpc: -31017, retry: 'maybe' },
  timeout: { http: 504, rpc: -31018, retry: 'maybe' },
  outcome_uncertain: { http: 502, rpc: -31019, retry: 'no' },
  expired: { http: 504, rpc: -31020, retry: 'no' },
  cancelled: { http: 499, rpc: -31021, retry: 'no' },
  tool_error: { http: 200, rpc: -31022, retry: 'no' },
  protocol_error: { http: 502, rpc: -32603, retry: 'no' },
  result_too_large: { http: 502, rpc: -31023, retry: 'no' },
  key_conflict: { http: 409, rpc: -31024, retry: 'no' },
  insufficient_storage: { http: 507, rpc: -31025, retry: 'later' },
} as const satisfies Record<string, ErrorFacts>;

export type ErrorCode = keyof typeof ERRORS;

/**
 * What is known about a request that failed: `not_executed` is a promise that no byte of it reached the server
 * (or that the server itself said it refused before doing anything); everything else is `uncertain`.
 */
export type Execution = 'not_executed' | 'uncertain';

/** How far a request had come when it failed. */
export type SendPhase = 'queued' | 'writing' | 'written' | 'answered';

/** The machine-readable part of an error. Everything here may be shown to a caller: never put a secret in it. */
export interface ErrorDetails {
  readonly server?: string;
  readonly tool?: string;
  readonly requestId?: string;
  /** The finer cause within the code, e.g. `frame_too_large`, `exit`, `ENOENT`. Stable, lower-case or errno. */
  readonly reason?: string;
  readonly phase?: SendPhase;
  readonly execution?: Execution;
  readonly retryAfterMs?: number;
  readonly field?: string;
  /** Of a denied caller. */
  readonly role?: string;
  /** Of a tool's definition: the one that was agreed to, and the one that is listed. */
  readonly oldHash?: string;
  readonly newHash?: string;
  readonly limit?: number;
  readonly actual?: number;
  readonly exitCode?: number;
  readonly signal?: string;
  readonly httpStatus?: number;
  /** JSON-RPC code the server itself answered with. */
  readonly rpcCode?: number;
}

export interface HostErrorOptions extends ErrorDetails {
  /** What the operator or caller does next. */
  readonly hint?: string;
  readonly cause?: unknown;
}

/** The same in every copy of this file: the command line is bundled in parts, and what one throws another reports. */
const brand: unique symbol = Symbol.for('hostler.HostError') as never;

export class HostError extends Error {
  override readonly name = 'HostError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, options: HostErrorOptions = {}) {
    const { hint, cause, ...details } = options;
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.hint = hint;
    this.details = details;
  }

  get [brand](): true {
    return true;
  }

  /** True when sending the same request again, now or after `retryAfterMs`, cannot run it twice. */
  get retryable(): boolean {
    const { retry } = ERRORS[this.code];
    const { execution } = this.details;
    if (execution === 'uncertain' || retry === 'no') return false;
    return retry !== 'maybe' || execution === 'not_executed';
  }

  /** The same error with these facts instead, hint and cause included. Errors are shared, so a new one is made. */
  with(changes: HostErrorOptions & { readonly code?: ErrorCode; readonly message?: string }): HostError {
    const { code = this.code, message = this.message, ...options } = changes;
    const { hint, cause, details } = this;
    return new HostError(code, message, {
      ...details,
      ...(hint === undefined ? {} : { hint }),
      ...(cause === undefined ? {} : { cause }),
      ...options,
    });
  }

  /** The shape callers see. `cause` stays behind: it may quote what a server said. */
  toJSON(): Record<string, unknown> {
    return {
      code: this.code,
      message: this.message,
      retryable: this.retryable,
      ...(this.hint === undefined ? {} : { hint: this.hint }),
      ...this.details,
    };
  }
}

export const isHostError = (error: unknown): error is HostError =>
  error instanceof HostError || (error instanceof Error && brand in error);

/** How many causes of causes are kept, and how many characters of each message. */
const causesMax = 4;
const causeChars = 1_000;

/**
 * The same facts without stacks, for errors that are kept: a stack holds on to every function and object on it. The
 * name, message and code of each cause stay: they say what went wrong.
 */
export function toRemember(error: HostError): HostError {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return rememberedError(error, causesMax) as HostError;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function rememberedError(error: unknown, causesLeft: number): Error {
  try {
    if (error instanceof Error) return copyOf(error, causesLeft);
  } catch {
    // Code of an embedder may throw an error whose members throw when they are read.
  }
  return new Error(thrownText(error).slice(0, causeChars));
}

function copyOf(error: Error, causesLeft: number): Error {
  const cause =
    error.cause === undefined || causesLeft === 0 ? undefined : rememberedError(error.cause, causesLeft - 1);
  const options = cause === undefined ? {} : { cause };
  if (isHostError(error)) {
    const { code, message, hint, details } = error;
    return new HostError(code, message, { ...details, ...(hint === undefined ? {} : { hint }), ...options });
  }
  const { name, code } = error as { name?: unknown; code?: unknown };
  const remembered = new Error(thrownText(error).slice(0, causeChars), options);
  if (typeof name === 'string') remembered.name = name;
  return typeof code === 'string' || typeof code === 'number' ? Object.assign(remembered, { code }) : remembered;
}
