import { expect, test } from 'vitest';
import { forwardHandlers } from './open-session.js';
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

test('W4 every handler is passed on, also one that is set later', () => {
  const told: unknown[] = [];
  const to: Record<string, (value: unknown) => void> = { request: (value) => told.push(['request', value]) };
  const forwarded = forwardHandlers(to as SessionHandlers) as Record<string, (value: unknown) => void>;
  for (const name of Object.keys(names)) to[name] = (value) => told.push([name, value]);
  const values = Object.keys(names).map((name) => [name, takesNothing.has(name) ? undefined : name]);
  for (const [name, value] of values) forwarded[name as string]?.(value);
  expect(told).toEqual(values);
});

test('requests of the server are passed on only where there was a handler for them', () => {
  expect(forwardHandlers({}).request).toBeUndefined();
  expect(Object.keys(forwardHandlers({ request: () => {} })).sort()).toEqual(Object.keys(names).sort());
});

const takesNothing = new Set(['missed', 'answered', 'renewed']);
