import { expect, test } from 'vitest';
import { ScriptedChannel } from '../../test/fakes/scripted-channel.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { forwardHandlers, openSession } from './open-session.js';
import type { SessionHandlers } from './session.js';

/** The compiler checks that no member is missing. */
const names: Record<keyof Required<SessionHandlers>, true> = {
  request: true,
  notification: true,
  closed: true,
  handlerError: true,
  unattributed: true,
  missed: true,
  answered: true,
  renewed: true,
};

test('W4 every handler is forwarded, also a handler that is set later', () => {
  const told: unknown[] = [];
  const to: Record<string, (value: unknown) => void> = { request: (value) => told.push(['request', value]) };
  const forwarded = forwardHandlers(to as SessionHandlers) as Record<string, (value: unknown) => void>;
  for (const name of Object.keys(names)) to[name] = (value) => told.push([name, value]);
  const values = Object.keys(names).map((name) => [name, takesNothing.has(name) ? undefined : name]);
  for (const [name, value] of values) forwarded[name as string]?.(value);
  expect(told).toEqual(values);
});

test('requests of the server are forwarded only if there was a handler for them', () => {
  expect(forwardHandlers({}).request).toBeUndefined();
  expect(Object.keys(forwardHandlers({ request: () => {} })).sort()).toEqual(Object.keys(names).sort());
});

const takesNothing = new Set(['missed', 'answered', 'renewed']);

test('a server that ends with its answer to initialize gives no session, because its end would not be noticed', async () => {
  const channel = new ScriptedChannel();
  channel.onSend = ({ id, method }) => {
    if (id === undefined) return;
    queueMicrotask(() => {
      if (method !== 'initialize') return channel.say({ jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } });
      channel.say({ jsonrpc: '2.0', id, result: { protocolVersion: '2025-11-25', capabilities: {} } });
      channel.lose(new HostError('transport', 'it has ended', { reason: 'exit' }));
    });
  };
  const opening = openSession({
    ...{ server: 'a', clock: new FakeClock(), startTimeoutMs: 1_000, clean: (text) => text },
    client: { name: 'hostler', version: '0', capabilities: {} },
    open: () => Promise.resolve(channel),
  });
  await expect(opening).rejects.toThrow('it has ended');
  expect(channel.closes).toBe(1);
});
