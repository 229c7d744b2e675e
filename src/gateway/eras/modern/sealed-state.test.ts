import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../../kernel/fake-clock.js';
import { StateSeal } from './parked-state.js';

const owner = {
  server: 'files',
  principal: { id: 'ada', role: 'dev', scopes: [] },
  identity: Buffer.from('tools/call move {}'),
};

describe('a sealed state', () => {
  test('is opened to the same bytes', () => {
    const seal = new StateSeal(new FakeClock());
    const text = '"\\u00e9\\/ é 🙂 \\ud800"';
    expect(seal.open(seal.seal('relayed', text, owner), owner)).toEqual({ kind: 'relayed', text });
    expect(seal.open(seal.seal('parked', '', owner), owner)).toEqual({ kind: 'parked', text: '' });
  });

  test('reveals nothing of its content and never has the same bytes twice', () => {
    const seal = new StateSeal(new FakeClock());
    const state = seal.seal('relayed', '"the secret"', owner);
    expect(state).toMatch(/^[\w-]+$/);
    expect(Buffer.from(state, 'base64url').includes('secret')).toBe(false);
    expect(seal.seal('relayed', '"the secret"', owner)).not.toBe(state);
  });

  test('with any single character changed, added or left out is refused', () => {
    const seal = new StateSeal(new FakeClock());
    const state = seal.seal('relayed', '"x"', owner);
    for (let at = 0; at < state.length; at++) {
      const other = state[at] === 'A' ? 'B' : 'A';
      expect(seal.open(state.slice(0, at) + other + state.slice(at + 1), owner)).toEqual({ fault: 'tampered' });
      expect(seal.open(state.slice(0, at) + state.slice(at + 1), owner)).toEqual({ fault: 'tampered' });
    }
    for (const wrong of ['', 'A', `${state}=`, `${state} `, `${state}A`, ` ${state}`, 'é'.repeat(300)])
      expect(seal.open(wrong, owner)).toEqual({ fault: 'tampered' });
  });

  test.each([
    ['another principal', { ...owner, principal: { ...owner.principal, id: 'bob' } }, 'other_caller'],
    ['another role', { ...owner, principal: { ...owner.principal, role: undefined } }, 'other_caller'],
    ['another server', { ...owner, server: 'mail' }, 'other_caller'],
    ['another request', { ...owner, identity: Buffer.from('tools/call delete {}') }, 'other_request'],
  ])('is refused for %s', (_, other, fault) => {
    const seal = new StateSeal(new FakeClock());
    expect(seal.open(seal.seal('relayed', '"x"', owner), other)).toEqual({ fault });
  });

  test('expires after ten minutes of wall time', () => {
    const clock = new FakeClock();
    const seal = new StateSeal(clock);
    const state = seal.seal('relayed', '"x"', owner);
    clock.advance(10 * 60_000 - 1);
    expect(seal.open(state, owner)).toEqual({ kind: 'relayed', text: '"x"' });
    clock.advance(1);
    expect(seal.open(state, owner)).toEqual({ fault: 'expired' });
  });

  test('is refused by another gateway', () => {
    const clock = new FakeClock();
    const state = new StateSeal(clock).seal('relayed', '"x"', owner);
    expect(new StateSeal(clock).open(state, owner)).toEqual({ fault: 'tampered' });
  });
});
