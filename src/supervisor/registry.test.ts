import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { type Registration, Registry } from './registry.js';

interface Spec {
  readonly command: string;
  readonly args?: readonly string[];
}

function setUp() {
  const clock = new FakeClock();
  const idle: { name: string; atMs: number }[] = [];
  const registry = new Registry<Spec>({ clock, onIdle: (name) => idle.push({ name, atMs: clock.nowMs() }) });
  const register = (name: string, options: Partial<Registration<Spec>> = {}, replace = false) =>
    registry.register(
      {
        name,
        spec: { command: name },
        isLazy: true,
        keepAliveMs: 30_000,
        card: undefined,
        ...options,
      },
      { replace },
    );
  const count = (name: string) => registry.snapshot().find((row) => row.name === name)?.refCount;
  return { clock, idle, registry, register, count };
}

const errorOf = (run: () => unknown): HostError => {
  try {
    run();
  } catch (error) {
    if (error instanceof HostError) return error;
  }
  return expect.unreachable();
};

describe('registrations', () => {
  test('AC-R1 a lazy server with a card is one row: lazy, not active, card kept', () => {
    const { registry, register } = setUp();
    register('x', { card: 'https://example.org/card.json' });
    expect(registry.snapshot()).toEqual([
      { name: 'x', lazy: true, active: false, refCount: 0, card: 'https://example.org/card.json' },
    ]);
  });

  test('AC-R3 a server is known from its registration to its removal', () => {
    const { registry, register } = setUp();
    expect(registry.has('x')).toBe(false);
    register('x');
    expect([registry.has('x'), registry.get('x').spec]).toEqual([true, { command: 'x' }]);
    expect([registry.remove('x'), registry.remove('x'), registry.has('x')]).toEqual([true, false, false]);
  });

  test('AC-R4 an empty registry has no rows, and its errors quote the unknown name', () => {
    const { registry } = setUp();
    expect(registry.snapshot()).toEqual([]);
    const error = errorOf(() => registry.lease('nope'));
    expect([error.code, error.message]).toEqual(['server_not_found', "no server named 'nope'"]);
    expect(() => registry.get('\u001b[2J\nFAKE')).toThrow("no server named '\\u{1b}[2J\\nFAKE'");
    expect(error.hint).toContain('configuration');
  });

  test('rows are in the order of names, and a name of an object member is an ordinary name', () => {
    const { registry, register } = setUp();
    for (const name of ['b', 'constructor', 'a', '__proto__']) register(name);
    expect(registry.snapshot().map(({ name }) => name)).toEqual(['__proto__', 'a', 'b', 'constructor']);
    expect(registry.list().map(({ name }) => name)).toEqual(['__proto__', 'a', 'b', 'constructor']);
  });

  test('D-14 registering the same definition again changes nothing; another definition is refused without replace', () => {
    const { registry, register } = setUp();
    const args = ['--read-only'];
    expect(register('x', { spec: { command: 'c', args } })).toBe('added');
    expect(register('x', { spec: { args: [...args], command: 'c' } })).toBe('unchanged');
    const error = errorOf(() => register('x', { spec: { command: 'd' } }));
    expect([error.code, error.details.server, error.details.field]).toEqual(['invalid_spec', 'x', 'name']);
    expect(registry.get('x').spec).toEqual({ command: 'c', args });
    expect(register('x', { spec: { command: 'd' } }, true)).toBe('replaced');
    expect(registry.get('x').spec).toEqual({ command: 'd' });
  });

  test('servers beyond the limit of the registry are refused, and the errors name them', () => {
    const clock = new FakeClock();
    const registry = new Registry<Spec>({ clock, onIdle: () => {}, serversMax: 1 });
    const one = { spec: { command: 'c' }, isLazy: false, keepAliveMs: 0, card: undefined };
    registry.register({ name: 'a', ...one });
    expect(errorOf(() => registry.register({ name: 'b', ...one })).details).toMatchObject({ server: 'b', limit: 1 });
    registry.clear();
    expect(registry.register({ name: 'b', ...one })).toBe('added');
  });
});

describe('leases', () => {
  test('AC-R2 a second release, or one after the removal of the server, does nothing', () => {
    const { clock, registry, register, count, idle } = setUp();
    register('x');
    const [a, b] = [registry.lease('x'), registry.lease('x')];
    a.release();
    a.release();
    a[Symbol.dispose]();
    expect([count('x'), a.isReleased, b.isReleased]).toEqual([1, true, false]);
    registry.remove('x');
    register('x');
    b.release();
    clock.advance(60_000);
    expect([count('x'), idle, clock.pendingTimers]).toEqual([0, [], 0]);
  });

  test('a lease can be used as a resource, either way', async () => {
    const { registry, register, count } = setUp();
    register('x');
    await registry.lease('x')[Symbol.asyncDispose]();
    registry.lease('x')[Symbol.dispose]();
    expect(count('x')).toBe(0);
  });

  test('AC-R6 a server is idle thirty seconds after its last lease, not sooner; a new lease restarts the time', () => {
    const { clock, registry, register, idle } = setUp();
    register('x');
    registry.opened('x');
    registry.lease('x').release();
    clock.advance(29_000);
    const again = registry.lease('x');
    clock.advance(60_000);
    expect([idle, clock.pendingTimers]).toEqual([[], 0]);
    again.release();
    clock.advance(29_999);
    expect(idle).toEqual([]);
    clock.advance(1);
    expect(idle).toEqual([{ name: 'x', atMs: 119_000 }]);
  });

  test('D-10 calls and bindings both hold a server open, and after a call the count is as before', () => {
    const { clock, registry, register, count, idle } = setUp();
    register('x', { keepAliveMs: 50 });
    registry.opened('x');
    const binding = registry.lease('x', 'binding');
    const hold = registry.callHold('x');
    for (let i = 0; i < 20; i++) hold.enter();
    expect([count('x'), registry.held('x')]).toEqual([21, { binding: 1, call: 20 }]);
    for (let i = 0; i < 20; i++) hold.leave();
    clock.advance(1_000);
    expect([count('x'), idle]).toEqual([1, []]);
    binding.release();
    clock.advance(50);
    expect([count('x'), idle.length]).toEqual([0, 1]);
  });

  test('D-11 neither a lost connection nor another definition removes a lease', () => {
    const { registry, register, count } = setUp();
    register('x');
    const leases = [registry.lease('x'), registry.lease('x')];
    registry.opened('x');
    registry.closed('x');
    register('x', { spec: { command: 'other' } }, true);
    expect([count('x'), leases.some(({ isReleased }) => isReleased)]).toEqual([2, false]);
  });

  test('D-31 an eager server holds itself open; after it becomes lazy, it does not', () => {
    const { clock, registry, register, count, idle } = setUp();
    register('x', { isLazy: false });
    registry.opened('x');
    registry.lease('x').release();
    clock.advance(86_400_000);
    expect([count('x'), idle]).toEqual([1, []]);
    register('x', { isLazy: true }, true);
    clock.advance(30_000);
    expect([count('x'), idle.length]).toEqual([0, 1]);
    register('x', { isLazy: false }, true);
    expect(count('x')).toBe(1);
  });

  test('with a keep-alive time of 0 a server is never idle', () => {
    const { clock, registry, register, idle } = setUp();
    register('x', { keepAliveMs: 0 });
    registry.opened('x');
    registry.lease('x').release();
    clock.advance(86_400_000);
    expect([idle, clock.pendingTimers]).toEqual([[], 0]);
  });
});

describe('idle time', () => {
  test('a server that became ready without a lease is idle again after its keep-alive time', () => {
    const { clock, registry, register, idle } = setUp();
    register('x');
    clock.advance(100_000);
    registry.opened('x');
    expect(registry.snapshot()[0]?.active).toBe(true);
    clock.advance(30_000);
    expect(idle).toEqual([{ name: 'x', atMs: 130_000 }]);
  });

  test('a server that is closed anyway has no idle time', () => {
    const { clock, registry, register, idle } = setUp();
    register('x');
    registry.opened('x');
    registry.closed('x');
    registry.closed('unknown');
    clock.advance(60_000);
    expect([idle, clock.pendingTimers]).toEqual([[], 0]);
  });

  test('a new keep-alive time counts from when it was set', () => {
    const { clock, registry, register, idle } = setUp();
    register('x');
    registry.opened('x');
    registry.lease('x').release();
    clock.advance(20_000);
    register('x', { keepAliveMs: 5_000 }, true);
    clock.advance(5_000);
    expect(idle).toEqual([{ name: 'x', atMs: 25_000 }]);
  });

  test('one timer serves any number of calls, and is extended if calls came meanwhile', () => {
    const { clock, registry, register, idle } = setUp();
    register('x');
    registry.opened('x');
    const hold = registry.callHold('x');
    for (let i = 0; i < 20; i++) {
      hold.enter();
      hold.leave();
      clock.advance(1_000);
      expect(clock.pendingTimers).toBe(1);
    }
    clock.advance(28_999);
    expect(idle).toEqual([]);
    clock.advance(1);
    expect([idle, clock.pendingTimers]).toEqual([[{ name: 'x', atMs: 49_000 }], 0]);
  });

  test('a server that does not run has no timer, whatever its leases were', () => {
    const { clock, registry, register } = setUp();
    register('x');
    registry.lease('x').release();
    expect(clock.pendingTimers).toBe(0);
  });

  test('clearing the registry leaves no timer', () => {
    const { clock, registry, register } = setUp();
    for (const name of ['a', 'b']) {
      register(name);
      registry.opened(name);
      registry.lease(name).release();
    }
    registry.clear();
    expect([clock.pendingTimers, registry.snapshot()]).toEqual([0, []]);
  });
});
