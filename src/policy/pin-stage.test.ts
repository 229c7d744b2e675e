import { expect, test } from 'vitest';
import { toolItem } from '../../test/fakes/pin-samples.js';
import { failureOf, fakeCall, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import { randomInt, seededRandom } from '../kernel/random.js';
import type { Call, Stage } from './operation.js';
import { memoryPinStore, type PinStatus } from './pin-records.js';
import { checkPins, pinRefusal } from './pin-stage.js';
import { defaultPinPolicy, type PinMode, type PinPolicy, Pins } from './pins.js';

const result = fakeResult();
const call = fakeCall();

/** The pin stage, and after it a stage that counts charges. */
function setUp(statusOf: (server: string, tool: string) => PinStatus, policy: PinPolicy = defaultPinPolicy) {
  const charged: Call[] = [];
  const budget: Stage<Call> = {
    enter: (next) => (charge) => {
      charged.push(charge);
      next(charge);
    },
  };
  const send = staged(checkPins({ statusOf, policyOf: () => policy }), budget)((_call, done) => done(result));
  return { send: promised(send), charged };
}

const table: ReadonlyArray<readonly [PinStatus, keyof PinPolicy | undefined]> = [
  ['approved', undefined],
  ['removed', undefined],
  ['new', 'onFirstSight'],
  ['changed', 'onChange'],
  ['renamed', 'onChange'],
];
const modes: readonly PinMode[] = ['block', 'warn', 'off'];
const cases = table.flatMap(([status, rule]) =>
  modes.flatMap((onFirstSight) => modes.map((onChange) => ({ status, rule, onFirstSight, onChange }))),
);

test.each(cases)('a tool that is $status: first sight $onFirstSight, change $onChange', async (row) => {
  const { status, rule, onFirstSight, onChange } = row;
  const policy = { onFirstSight, onChange };
  const { send, charged } = setUp(() => status, policy);
  const isRefused = rule !== undefined && policy[rule] === 'block';
  if (isRefused) expect((await failureOf(send(call))).details.reason).toBe(status);
  else expect(await send(call)).toBe(result);
  expect(charged.length).toBe(isRefused ? 0 : 1);
});

test('D-25 a refusal says what is wrong and what to do, and nothing is charged', async () => {
  const { send, charged } = setUp(() => 'changed');
  const error = await failureOf(send(call));
  expect(error.toJSON()).toEqual({
    code: 'schema_changed',
    message: "server 'github': tool 'get_issue' differs from the definition that was approved",
    retryable: false,
    hint: 'ask the operator to compare the definitions: hostler approve github/get_issue',
    server: 'github',
    tool: 'get_issue',
    reason: 'changed',
    phase: 'queued',
    execution: 'not_executed',
  });
  expect(charged).toEqual([]);
});

test('without a readable status no call passes', async () => {
  const { send, charged } = setUp(() => {
    throw new Error('no store');
  });
  await expect(send(call)).rejects.toThrow('no store');
  expect(charged).toEqual([]);
});

test('D-25 the command of a refusal is safe to paste, whatever the server calls the tool', async () => {
  const { send } = setUp(() => 'changed');
  const { hint } = await failureOf(send({ ...call, tool: "x';id;'" }));
  expect(hint).toBe("ask the operator to compare the definitions: hostler approve 'github/x'\\'';id;'\\'''");
});

test('D-25 a changed tool is refused from the next call on, and passes once approved', async () => {
  const pins = new Pins({ store: memoryPinStore() });
  const { send } = setUp((server, tool) => pins.statusOf(server, tool));
  const now = new Date(0);
  pins.observe('github', [toolItem()], now);
  expect(await send(call)).toBe(result);
  pins.observe('github', [toolItem({ annotations: { readOnlyHint: false } })], now);
  pins.observe('github', [toolItem({ annotations: { readOnlyHint: false } })], now);
  expect((await failureOf(send(call))).code).toBe('schema_changed');
  pins.approve('github', 'get_issue', pins.recordOf('github', 'get_issue')?.pending?.hash ?? '', now);
  expect(await send(call)).toBe(result);
});

test('X11 listing and callability never disagree', async () => {
  const seed = 13;
  const random = seededRandom(seed);
  const names = ['a', 'b', 'c', 'd'];
  for (let round = 0; round < 60; round++) {
    const mode = () => modes[randomInt(random, 0, 2)] as PinMode;
    const policy: PinPolicy = { onFirstSight: mode(), onChange: mode() };
    const store = memoryPinStore();
    let pins = new Pins({ store, policyOf: () => policy, pinsMax: 3 });
    const { send } = setUp((server, tool) => pins.statusOf(server, tool), policy);
    for (let step = 0; step < 10; step++) {
      if (random() < 0.2) pins = new Pins({ store, policyOf: () => policy, pinsMax: 3 });
      const some = Array.from({ length: randomInt(random, 0, 5) }, () => names[randomInt(random, 0, 3)] as string);
      const items = some.map((name) => toolItem({ name, title: `${randomInt(random, 0, 2)}` }));
      const { tools } = pins.observe('github', items, new Date(step));
      for (const [tool, status] of tools) {
        const outcome = await send(fakeCall({ tool })).then(
          () => undefined,
          (error) => error.details.reason,
        );
        expect(outcome, `seed ${seed}, round ${round}, step ${step}`).toBe(pinRefusal(status, policy));
        const hash = pins.recordOf('github', tool)?.pending?.hash;
        if (status !== 'approved' && hash !== undefined && some.includes(tool) && random() < 0.3) {
          pins.approve('github', tool, hash, new Date(step));
          expect(await send(fakeCall({ tool }))).toBe(result);
        }
      }
    }
  }
});
