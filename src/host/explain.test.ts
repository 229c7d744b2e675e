import { expect, test } from 'vitest';
import { parseServerDefinition } from '../config/server-definition.js';
import { HostError } from '../kernel/errors.js';
import { type ExplainFacts, explain } from './explain.js';
import type { StatusRow } from './status.js';

const row = {
  state: 'ready',
  since: '2026-01-01T00:00:00.000Z',
  forMs: 1,
  active: true,
  circuit: 'closed',
} as StatusRow;
const resting = { ...row, state: 'registered', active: false } as StatusRow;
const parked = { ...row, state: 'parked', active: false, forMs: 1_000 } as StatusRow;
const facts: ExplainFacts = {
  definition: parseServerDefinition('git', { command: 'git-mcp' }, true),
  principal: { id: 'ada', role: 'dev', scopes: [] },
  tool: 'read',
  isListed: true,
  toolNames: ['read', 'write'],
  denial: undefined,
  row,
  breakerRetryAfterMs: undefined,
  cacheEntries: 2,
  budget: undefined,
  pin: { status: 'approved', record: undefined },
  fault: undefined,
  refusal: undefined,
  wakeAfterMs: 5_000,
};
const halfOpen = { ...row, circuit: 'half_open' } as const;
const denied = new HostError('denied', 'no rule allows it', { hint: 'ask' });
const isParked = new HostError('server_parked', 'it is parked', { retryAfterMs: 60_000 });
const spent = { calls: 5, windowMs: 60_000, left: 0, resetsInMs: 100 };
const changed = { status: 'changed', record: undefined } as const;

test.each<[string, Partial<ExplainFacts>, string, boolean]>([
  ['a ready server is called', {}, 'passes', false],
  ['an idle server is started', { row: resting }, 'starts', true],
  ['the call waits for a connecting server', { row: { ...resting, state: 'connecting' } }, 'waits', false],
  ['a server that was just parked refuses', { row: parked, refusal: isParked }, 'server_parked', false],
  ['a server parked for some time is tried', { row: { ...parked, forMs: 5_000 }, refusal: isParked }, 'tries', true],
  ['an open breaker refuses', { row: { ...row, circuit: 'open' }, breakerRetryAfterMs: 5 }, 'circuit_open', false],
  ['half open, the call is the trial', { row: halfOpen, breakerRetryAfterMs: 0 }, 'passes', false],
  ['half open with all trials running, it refuses', { row: halfOpen, breakerRetryAfterMs: 5 }, 'circuit_open', false],
  ['a spent budget refuses', { budget: spent }, 'budget_exceeded', false],
  ['a changed tool is blocked', { pin: changed }, 'schema_changed', false],
  ['a tool that does not exist', { isListed: false, tool: 'raed' }, 'tool_not_found', false],
  ['the rules are checked first', { denial: denied, pin: changed, budget: spent, row: resting }, 'denied', false],
])('the forecast of a call: %s', (_name, changes, outcome, wouldStart) => {
  const { call, wouldStart: starts } = explain({ ...facts, ...changes });
  expect([call.outcome === 'refused' ? call.code : call.outcome, starts]).toEqual([outcome, wouldStart]);
});

test.each<[string, Partial<ExplainFacts>, boolean, string]>([
  ['a rule of the role', {}, true, "a rule of role 'dev' allows it"],
  ['no role', { principal: { id: 'a', role: undefined, scopes: [] } }, true, 'callers without a role may use it'],
  ['tools that the rules refuse are hidden', { denial: denied }, false, 'no rule allows it'],
  [
    'a tool that clients refuse',
    { fault: { fields: ['inputSchema'], item: undefined } },
    false,
    'clients refuse its definition, so it is left out of lists',
  ],
  ['a tool that is not listed', { isListed: false }, false, 'the server lists no such tool'],
  [
    'a server that was never seen',
    { isListed: undefined },
    true,
    "a rule of role 'dev' allows it, if the server has it: its tools are not known yet",
  ],
])('the principals that see a tool, and the deciding rule: %s', (_name, changes, visible, rule) => {
  expect(explain({ ...facts, ...changes })).toMatchObject({ visible, rule });
});

test('pins are shown with both hashes', () => {
  const version = (hash: string) => ({ hash, bodyHash: hash, raw: undefined, at: '' });
  const record = {
    name: 'read',
    approved: version('old'),
    pending: version('new'),
    firstHash: undefined,
    renamedFrom: undefined,
    isAmbiguous: false,
    isListed: true,
  };
  expect(explain({ ...facts, pin: { status: 'changed', record } }).pin).toEqual({
    status: 'changed',
    approvedHash: 'old',
    listedHash: 'new',
    blocks: true,
  });
});

test('a mistyped tool is answered with the nearest name, and a renamed one with its name for clients', () => {
  const { call } = explain({ ...facts, isListed: false, tool: 'raed' });
  expect(call).toMatchObject({ hint: 'did you mean read? hostler tools git lists its tools' });
  const definition = parseServerDefinition('git', { command: 'x', tools: { rename: { read: 'peek' } } }, true);
  expect(explain({ ...facts, definition }).shownAs).toBe('peek');
  expect(explain(facts).shownAs).toBeUndefined();
});

test('a list of tools that failed is part of the explanation', () => {
  const toolsError = 'tools/list failed';
  expect(explain({ ...facts, row: { ...row, toolsError } }).state.toolsError).toBe(toolsError);
});

test('the command to approve a tool is safe to paste, whatever the server calls the tool', () => {
  const { call } = explain({ ...facts, tool: "x';id;'", pin: changed });
  expect(call).toMatchObject({ hint: "compare and approve it: hostler approve 'git/x'\\'';id;'\\'''" });
});
