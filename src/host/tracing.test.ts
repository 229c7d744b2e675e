import * as api from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fakeResult } from '../../test/fakes/policy-call.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { openTracing, type TraceApi, Tracing } from './tracing.js';

const exporter = new InMemorySpanExporter();
const problems: unknown[] = [];
const onProblem = (error: unknown) => void problems.push(error);

beforeAll(() => {
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  api.trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
});
beforeEach(() => {
  exporter.reset();
  problems.length = 0;
});
afterAll(() => {
  api.context.disable();
  api.trace.disable();
});

const spans = () => exporter.getFinishedSpans();
const asked = async () => (await openTracing({ traces: true }, onProblem)) as Tracing;

test('D-28 a span has the server and tool, the number of attempts, the run and the outcome', async () => {
  const tracing = await asked();
  tracing.begin('r1', 'files', 'read')(fakeResult('{}', { run: 4 }), { attempts: 2, run: 4 });
  const error = new HostError('timeout', 'the server said: hunter2', {});
  tracing.begin('r2', 'files', 'write')(error, { attempts: 1, run: 5 });
  tracing.begin('r3', 'files', 'read')(fakeResult('{}', { run: 0 }), { attempts: 0, run: 0 });
  tracing.begin('r4', 'files', 'read')(undefined, { attempts: 1, run: 5 });
  expect(spans().map(({ name, kind, attributes, status }) => ({ name, kind, ...attributes, status }))).toEqual([
    {
      name: 'hostler.call',
      kind: api.SpanKind.CLIENT,
      'hostler.server': 'files',
      'hostler.tool': 'read',
      'hostler.request_id': 'r1',
      'hostler.outcome': 'ok',
      'hostler.run': 4,
      'hostler.attempts': 2,
      'hostler.cache_hit': false,
      status: { code: api.SpanStatusCode.UNSET },
    },
    expect.objectContaining({
      'hostler.tool': 'write',
      'hostler.outcome': 'timeout',
      'hostler.run': 5,
      status: { code: api.SpanStatusCode.ERROR, message: 'timeout' },
    }),
    expect.objectContaining({ 'hostler.cache_hit': true, 'hostler.attempts': 0, 'hostler.outcome': 'ok' }),
    expect.objectContaining({ 'hostler.outcome': 'unexpected' }),
  ]);
  expect(JSON.stringify(spans().map(({ status, events }) => [status, events]))).not.toContain('hunter2');
});

test('D-28 the parent is the span that was active when the call began, in whatever order calls end', async () => {
  const tracing = await asked();
  const tracer = api.trace.getTracer('test');
  const within = (name: string) => {
    const parent = tracer.startSpan(name);
    const end = api.context.with(api.trace.setSpan(api.context.active(), parent), () => tracing.begin(name, 's', 't'));
    return { parent, end };
  };
  const [one, other] = [within('one'), within('other')];
  api.context.with(api.trace.setSpan(api.context.active(), one.parent), () =>
    other.end(fakeResult(), { attempts: 1, run: 1 }),
  );
  one.end(fakeResult(), { attempts: 1, run: 1 });
  const parents = spans().map(({ attributes, parentSpanContext }) => [
    attributes['hostler.request_id'],
    parentSpanContext?.spanId,
  ]);
  expect(parents).toEqual([
    ['other', other.parent.spanContext().spanId],
    ['one', one.parent.spanContext().spanId],
  ]);
});

describe('asking for traces', () => {
  test('with traces off loads nothing', async () => {
    const load = () => Promise.reject(new Error('loaded'));
    expect(await openTracing({ traces: false }, onProblem, load)).toBeUndefined();
  });

  test('without the package is an error that names the package to install', async () => {
    const load = () => Promise.reject(Object.assign(new Error('not found'), { code: 'ERR_MODULE_NOT_FOUND' }));
    const error = await openTracing({ traces: true }, onProblem, load).catch((thrown: unknown) => thrown);
    if (!isHostError(error)) throw error;
    expect([error.code, error.details.field]).toEqual(['invalid_spec', 'telemetry.traces']);
    expect(error.hint).toContain('install @opentelemetry/api');
  });
});

describe('a tracer that fails', () => {
  const failing = (span: object): TraceApi => ({
    ...api,
    trace: { getTracer: () => ({ startSpan: () => span as never }) },
  });

  test('at the start of a span loses only the span', () => {
    const tracing = new Tracing(
      {
        ...api,
        trace: {
          getTracer: () => {
            throw new Error('no tracer');
          },
        },
      },
      onProblem,
    );
    tracing.begin('r1', 's', 't')(fakeResult(), { attempts: 1, run: 1 });
    expect(problems).toHaveLength(1);
  });

  test('at the end is reported, and the span still ends', () => {
    let ends = 0;
    const setAttributes = () => {
      throw new Error('full');
    };
    const tracing = new Tracing(failing({ setAttributes, end: () => ends++ }), onProblem);
    tracing.begin('r1', 's', 't')(fakeResult(), { attempts: 1, run: 1 });
    expect([ends, problems.length]).toEqual([1, 1]);
  });
});
