import { expect, test } from 'vitest';
import { type LoginEvent, type LoginState, step } from './login-state.js';

const expected = { state: 's', issuer: 'https://as', needsIss: true, redirectUri: 'http://127.0.0.1:1/callback' };
const waiting: LoginState = { kind: 'waiting', expected, wrongPastes: 0 };
const back = (query: string): LoginEvent => ({ kind: 'returned', params: new URLSearchParams(query) });
const good = 'code=c&state=s&iss=https%3A%2F%2Fas';

test.each<[string, LoginState, LoginEvent, string]>([
  ['a code before the URL was shown is ignored', { kind: 'preparing' }, back(good), 'preparing'],
  ['an abort before the URL was shown ends the login', { kind: 'preparing' }, { kind: 'cancelled' }, 'refused'],
  ['a code is redeemed', waiting, back(good), 'redeeming'],
  ['a redirect with another `state` changes nothing', waiting, back(good.replace('state=s', 'state=t')), 'waiting'],
  ['a redirect with two `state` parameters changes nothing', waiting, back(`${good}&state=s`), 'waiting'],
  ['a wrong issuer ends the login', waiting, back('code=c&state=s&iss=https%3A%2F%2Fas%2F'), 'refused'],
  ['an absent issuer ends the login', waiting, back('code=c&state=s'), 'refused'],
  ['a refusal by the person ends the login', waiting, back(`${good}&error=access_denied`), 'refused'],
  ['a redirect with two codes ends the login', waiting, back(`${good}&code=d`), 'refused'],
  ['a second code is ignored', { kind: 'redeeming', code: 'c' }, back(good), 'redeeming'],
  [
    'the end of the time does not end a login whose code is being redeemed',
    { kind: 'redeeming', code: 'c' },
    { kind: 'expired' },
    'redeeming',
  ],
  ['the end of the time ends a login that waits', waiting, { kind: 'expired' }, 'refused'],
  [
    'the code of a pasted address of this login is redeemed',
    waiting,
    { kind: 'pasted', text: ` ${expected.redirectUri}?${good}\n` },
    'redeeming',
  ],
  [
    'the code of a pasted address of another host is not redeemed',
    waiting,
    { kind: 'pasted', text: `http://evil/callback?${good}` },
    'waiting',
  ],
  [
    'the third wrong address that is pasted ends the login',
    { ...waiting, wrongPastes: 2 },
    { kind: 'pasted', text: 'x' },
    'refused',
  ],
  ['a refused login stays refused', { kind: 'refused', reason: 'x' }, back(good), 'refused'],
])('%s', (_name, before, event, kind) => {
  const after = step(before, event);
  expect(after.kind).toBe(kind);
  if (after.kind === 'redeeming') expect(after.code).toBe('c');
  // An event without effect returns the same state, except a wrong pasted address, which is counted.
  expect(after === before).toBe(after.kind === before.kind && event.kind !== 'pasted');
});
