/**
 * One OpenTelemetry span for each call, if the configuration asks for it. The exporter of the embedder sets up the SDK; here is only
 * the API, which is loaded when it is asked for and is no dependency otherwise.
 * Not here: reading the configuration (config/host-config.ts), what is told to listeners (audit.ts).
 *
 * Invariants: the parent is the context that was active when the call was made, given explicitly, so that interleaved calls
 * cannot mix; a span ends once, with its call; a tracer that fails costs its span and never the call.
 */
import type { HostSettings } from '../config/host-config.js';
import { HostError } from '../kernel/errors.js';
import { importPeer } from '../kernel/import-peer.js';
import type { CallResult } from '../policy/operation.js';
import type { CallOutcome, CallTrail } from '../policy/policy-events.js';

export interface TelemetryConfig {
  /** A span for each call, through the OpenTelemetry API. */
  readonly traces?: boolean;
}

/** The part of `@opentelemetry/api` that is used. In our own words, so that our types do not need the package. */
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

/** Call it once, with how the call ended. */
export type EndSpan = (outcome: CallResult | HostError | undefined, trail: CallTrail) => void;

export const outcomeOf = (outcome: CallResult | HostError): CallOutcome =>
  outcome instanceof HostError ? outcome.code : outcome.isError ? 'tool_error' : 'ok';

export class Tracing {
  readonly #api: TraceApi;
  readonly #onProblem: (error: unknown) => void;

  constructor(api: TraceApi, onProblem: (error: unknown) => void) {
    this.#api = api;
    this.#onProblem = onProblem;
  }

  /** Call it in the tick in which the call is made: later, another context is active. */
  begin(requestId: string, server: string, tool: string): EndSpan {
    const span = this.#safely(() => this.#start(requestId, server, tool));
    return (outcome, trail) => {
      if (span) this.#safely(() => this.#end(span, outcome, trail));
    };
  }

  #start(requestId: string, server: string, tool: string): Span {
    const { context, trace, SpanKind } = this.#api;
    const attributes = { 'hostler.server': server, 'hostler.tool': tool, 'hostler.request_id': requestId };
    // Asked for each time: the API answers with the provider that is set up now.
    return trace
      .getTracer('hostler')
      .startSpan('hostler.call', { kind: SpanKind.CLIENT, attributes }, context.active());
  }

  /** Codes only: what a server said stays out of traces. Without an outcome something failed that has no code. */
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

/** Undefined when no traces are asked for. */
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
      hint: 'install @opentelemetry/api 1.9 or newer beside Hostler, or take telemetry.traces out',
      cause,
    });
  }
}
