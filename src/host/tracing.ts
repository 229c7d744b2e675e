/**
 * One OpenTelemetry span for each call, if the configuration enables it. The embedder sets up the SDK; this file loads only the
 * API, and only on demand.
 * Not here: parsing the configuration (config/host-config.ts), events (audit.ts).
 *
 * Invariants: the parent is the context that was active when the call was made; it is passed explicitly, so interleaved calls
 * cannot mix. A span ends once, with its call. A failing tracer never fails a call.
 */

import type { HostSettings } from '../config/host-config.js';
import { HostError } from '../kernel/errors.js';
import { importPeer } from '../kernel/import-peer.js';
import { type CallResult, outcomeOf } from '../policy/operation.js';
import type { CallTrail } from '../policy/policy-events.js';

export interface TelemetryConfig {
  readonly traces?: boolean;
}

/** The part of `@opentelemetry/api` that this file uses, declared here so that the public types do not need the package. */
export interface TraceApi {
  readonly context: { active(): unknown };
  readonly trace: { getTracer(name: string): Tracer };
  readonly SpanKind: { readonly CLIENT: number };
  readonly SpanStatusCode: { readonly ERROR: number };
}

type Attributes = Record<string, string | number | boolean>;

interface Tracer {
  startSpan(name: string, options: { kind: number; attributes: Attributes }, parent: unknown): Span;
}

interface Span {
  setAttributes(attributes: Attributes): unknown;
  setStatus(status: { code: number; message?: string }): unknown;
  end(): void;
}

/** Call it once, with the outcome of the call. */
export type EndSpan = (outcome: CallResult | HostError | undefined, trail: CallTrail) => void;

export class Tracing {
  readonly #api: TraceApi;
  readonly #onProblem: (error: unknown) => void;

  constructor(api: TraceApi, onProblem: (error: unknown) => void) {
    this.#api = api;
    this.#onProblem = onProblem;
  }

  /** Call it in the tick in which the call was made: later, another context is active. */
  begin(requestId: string, server: string, tool: string): EndSpan {
    const span = this.#safely(() => this.#start(requestId, server, tool));
    return (outcome, trail) => {
      if (span) this.#safely(() => this.#end(span, outcome, trail));
    };
  }

  #start(requestId: string, server: string, tool: string): Span {
    const { context, trace, SpanKind } = this.#api;
    const attributes = { 'hostler.server': server, 'hostler.tool': tool, 'hostler.request_id': requestId };
    // Called each time: the API returns the provider that is registered now.
    return trace
      .getTracer('hostler')
      .startSpan('hostler.call', { kind: SpanKind.CLIENT, attributes }, context.active());
  }

  /** Sets codes only: text of a server is never traced. `outcome` is undefined after an unexpected error. */
  #end(span: Span, outcome: CallResult | HostError | undefined, trail: CallTrail): void {
    try {
      const code = outcome ? outcomeOf(outcome) : 'unexpected';
      const answer = outcome instanceof HostError ? undefined : outcome;
      span.setAttributes({
        'hostler.outcome': code,
        'hostler.run': answer?.run ?? trail.run,
        'hostler.attempts': trail.attempts,
        'hostler.cache_hit': answer?.fromCache ?? false,
      });
      if (code !== 'ok') span.setStatus({ code: this.#api.SpanStatusCode.ERROR, message: code });
    } finally {
      span.end();
    }
  }

  #safely<T>(run: () => T): T | undefined {
    try {
      return run();
    } catch (error) {
      this.#onProblem(error);
      return undefined;
    }
  }
}

const loadApi = async (): Promise<TraceApi> => (await importPeer('@opentelemetry/api')) as TraceApi;

/** Undefined if traces are disabled. */
export async function openTracing(
  { traces }: HostSettings['telemetry'],
  onProblem: (error: unknown) => void,
  load: () => Promise<TraceApi> = loadApi,
): Promise<Tracing | undefined> {
  if (!traces) return undefined;
  try {
    return new Tracing(await load(), onProblem);
  } catch (cause) {
    throw new HostError('invalid_spec', 'telemetry.traces: @opentelemetry/api cannot be loaded', {
      field: 'telemetry.traces',
      hint: 'install @opentelemetry/api 1.9 or newer beside Hostler, or remove telemetry.traces',
      cause,
    });
  }
}
