import { describe, expect, test } from 'vitest';
import { type ParkedEvent, type ParkedState, stepParked } from './parked-state.js';

const running: ParkedState = { kind: 'running' };
const answering: ParkedState = { kind: 'answering' };
const over: ParkedState = { kind: 'over' };
const asking = (...asks: string[]): ParkedState => ({ kind: 'asking', asks, wasParked: false });
const again = (...asks: string[]): ParkedState => ({ kind: 'asking', asks, wasParked: true });
const asked = (open: string[], next: string[] = [], isDone = false): ParkedState => ({
  kind: 'asked',
  open,
  next,
  isDone,
});

const ask = (key: string): ParkedEvent => ({ kind: 'ask', key });
const withdrawn = (key: string): ParkedEvent => ({ kind: 'withdrawn', key });
const resumed = (...answered: string[]): ParkedEvent => ({ kind: 'resumed', answered });
const [gathered, finished, left, expired] = (['gathered', 'finished', 'left', 'expired'] as const).map(
  (kind) => ({ kind }) as ParkedEvent,
) as [ParkedEvent, ParkedEvent, ParkedEvent, ParkedEvent];

const table: readonly [state: ParkedState, event: ParkedEvent, next: ParkedState, effects: string][] = [
  [running, ask('a'), asking('a'), 'gather'],
  [running, finished, over, 'settle forget'],
  [running, left, over, 'giveUp abort forget'],
  [running, expired, running, ''],
  [running, resumed('a'), running, ''],
  [asking('a'), ask('b'), asking('a', 'b'), ''],
  [asking('a', 'b'), withdrawn('a'), asking('b'), ''],
  [asking('a'), withdrawn('a'), running, 'stopGathering'],
  [again('a'), withdrawn('a'), answering, 'stopGathering'],
  [asking('a', 'b'), gathered, asked(['a', 'b']), 'reply:a,b armExpiry'],
  [asking('a'), finished, over, 'stopGathering settle refuse:a forget'],
  [asking('a'), left, over, 'stopGathering giveUp abort refuse:a forget'],
  [asked(['a']), ask('b'), asked(['a'], ['b']), ''],
  [asked(['a'], ['b']), withdrawn('b'), asked(['a']), ''],
  [asked(['a'], ['b']), withdrawn('a'), asked([], ['b']), ''],
  [asked(['a']), left, asked(['a']), ''],
  [asked(['a', 'b']), resumed('a', 'b'), answering, 'disarmExpiry answer:a answer:b'],
  [asked(['a', 'b']), resumed('b', 'x'), again('a'), 'disarmExpiry answer:b gather'],
  [asked(['a'], ['b']), resumed('a', 'b'), again('b'), 'disarmExpiry answer:a gather'],
  [asked([]), resumed(), answering, 'disarmExpiry'],
  [asked(['a'], ['b']), finished, asked([], [], true), 'refuse:a refuse:b'],
  [asked([], [], true), ask('c'), asked([], [], true), 'refuse:c'],
  [asked([], [], true), resumed('a'), over, 'disarmExpiry settle forget'],
  [asked(['a'], ['b']), expired, over, 'abort refuse:a refuse:b forget'],
  [asked([], [], true), expired, over, 'abort forget'],
  [answering, ask('b'), again('b'), 'gather'],
  [answering, finished, over, 'settle forget'],
  [answering, left, over, 'giveUp abort forget'],
  [answering, resumed(), answering, ''],
  [over, ask('a'), over, 'refuse:a'],
  [over, finished, over, ''],
  [over, left, over, ''],
  [over, gathered, over, ''],
  [over, resumed('a'), over, ''],
  [over, expired, over, ''],
  [over, withdrawn('a'), over, ''],
];

describe('a call that may be parked', () => {
  test.each(
    table.map(([state, event, next, effects]) => ({ state, event, next, effects, from: state.kind, on: event.kind })),
  )('in state $from, event $on: effects $effects', ({ state, event, next, effects }) => {
    const [became, done] = stepParked(state, event);
    expect(became).toEqual(next);
    const words = done.map((effect) => {
      if ('keys' in effect) return `${effect.do}:${effect.keys.join(',')}`;
      return 'key' in effect ? `${effect.do}:${effect.key}` : effect.do;
    });
    expect(words.join(' ')).toBe(effects);
  });
});
