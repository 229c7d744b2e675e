/**
 * The table of all error codes, and the one error class. Callers branch on `code`; the text is for people.
 * Not here: reactions to a failure (policy/, supervisor/).
 * Invariant: text of a peer is quoted only after redaction (redact.ts).
 */

/** Whether the same request may be sent again. `maybe`: only with `execution: "not_executed"`. */
type RetryAdvice = 'yes' | 'later' | 'no' | 'maybe';

interface ErrorFacts {
  /** HTTP status if the error is the whole response. */
  readonly http: number;
  /** JSON-RPC code. Codes that Hostler defines are outside -32768..-32000, which the protocol reserves. */
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
 * `not_executed` guarantees that no byte of the failed request reached the server, or that the server refused the request
 * before executing it. Every other failure is `uncertain`.
 */
export type Execution = 'not_executed' | 'uncertain';

export type SendPhase = 'queued' | 'writing' | 'written' | 'answered';

/** Machine-readable part of an error. It is shown to callers, so it must not contain a secret. */
export interface ErrorDetails {
  readonly server?: string;
  readonly tool?: string;
  readonly requestId?: string;
  /** Finer cause within the code, e.g. `frame_too_large`, `exit`, `ENOENT`. Stable, lower-case or errno. */
  readonly reason?: string;
  readonly phase?: SendPhase;
  readonly execution?: Execution;
  readonly retryAfterMs?: number;
  readonly field?: string;
  readonly role?: string;
  /** Hashes of a tool definition: the approved one and the listed one. */
  readonly oldHash?: string;
  readonly newHash?: string;
  readonly limit?: number;
  readonly actual?: number;
  readonly exitCode?: number;
  readonly signal?: string;
  readonly httpStatus?: number;
  /** JSON-RPC code that the server answered with. */
  readonly rpcCode?: number;
}

export interface HostErrorOptions extends ErrorDetails {
  readonly hint?: string | undefined;
  readonly cause?: unknown;
}

/** Errors without a stack trace: under overload there are many, and the trace costs more than the rest of the error. */
const refusals: ReadonlySet<ErrorCode> = new Set([
  'denied',
  'budget_exceeded',
  'circuit_open',
  'tool_throttled',
  'overloaded',
]);

export class HostError extends Error {
  override readonly name = 'HostError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, options: HostErrorOptions = {}) {
    const { hint, cause, ...details } = options;
    const { stackTraceLimit } = Error;
    if (refusals.has(code)) Error.stackTraceLimit = 0;
    super(message, cause === undefined ? undefined : { cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.code = code;
    this.hint = hint;
    this.details = details;
  }

  /** True if sending the same request again, now or after `retryAfterMs`, cannot run it twice. */
  get retryable(): boolean {
    const { retry } = ERRORS[this.code];
    const { execution } = this.details;
    if (execution === 'uncertain' || retry === 'no') return false;
    return retry !== 'maybe' || execution === 'not_executed';
  }

  /** Returns a copy with these changes, including hint and cause. Errors are shared, so they are never modified. */
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

  /** Shape that callers see. `cause` is omitted, because it may quote a server. */
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

/** Makes an error for a request that did not reach its server, or that the server refused before executing it. */
export const notExecuted = (code: ErrorCode, message: string, hint?: string, facts: HostErrorOptions = {}): HostError =>
  new HostError(code, message, { ...facts, hint, execution: 'not_executed' });

/** Also checks members: the command line is bundled in two parts, each with its own copy of the class. */
export const isHostError = (error: unknown): error is HostError =>
  error instanceof HostError || (error instanceof Error && 'details' in error && 'retryable' in error);

/** Returns the first fault, with the others as its cause. */
export function joinFaults([first, ...others]: readonly HostError[]): HostError {
  if (first === undefined) throw new Error('no fault is given');
  return others.length === 0 ? first : first.with({ cause: new AggregateError(others) });
}

/** Returns the faults that `joinFaults` put into this error; for any other error, the error itself. */
export const faultsOf = (error: HostError): readonly HostError[] =>
  error.cause instanceof AggregateError ? [error, ...(error.cause.errors as HostError[])] : [error];

/** Maximum number of nested causes to copy, and of characters per message. */
const causesMax = 4;
const causeChars = 1_000;

/**
 * Returns a copy without stacks, for errors that stay in memory: a stack retains every function and object on it. The copy has
 * the name, message and code of each cause.
 */
export function withoutStack(error: HostError): HostError {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return stacklessError(error, causesMax) as HostError;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function stacklessError(error: unknown, causesLeft: number): Error {
  try {
    if (error instanceof Error) return copyOf(error, causesLeft);
  } catch {
    // The error of an embedder may have getters that throw.
  }
  return new Error(thrownText(error).slice(0, causeChars));
}

function copyOf(error: Error, causesLeft: number): Error {
  const cause = error.cause === undefined || causesLeft === 0 ? undefined : stacklessError(error.cause, causesLeft - 1);
  const options = cause === undefined ? {} : { cause };
  if (isHostError(error)) {
    const { code, message, hint, details } = error;
    return new HostError(code, message, { ...details, ...(hint === undefined ? {} : { hint }), ...options });
  }
  const { name, code } = error as { name?: unknown; code?: unknown };
  const copy = new Error(thrownText(error).slice(0, causeChars), options);
  if (typeof name === 'string') copy.name = name;
  return typeof code === 'string' || typeof code === 'number' ? Object.assign(copy, { code }) : copy;
}

/** Returns the text of a thrown value. Never throws, even for a value without text or with a getter that throws. */
export function thrownText(thrown: unknown): string {
  try {
    return thrown instanceof Error ? String(thrown.message || thrown.name) : String(thrown);
  } catch {
    return typeof thrown;
  }
}
