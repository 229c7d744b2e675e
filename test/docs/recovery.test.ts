/**
 * The diagram in docs/recovery.md is generated from the state machine. `UPDATE=1` writes it again.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { diagram, transitions } from './transitions.js';

const file = new URL('../../docs/recovery.md', import.meta.url);
const all = [
  ...transitions(),
  ...transitions({ onExhausted: 'eject' }).filter(({ from, to }) => from === 'ejected' || to === 'ejected'),
];

test('the diagram of states equals the state machine', () => {
  const text = readFileSync(file, 'utf8');
  const drawn = diagram(all);
  if (process.env.UPDATE) writeFileSync(file, text.replace(/```mermaid[\s\S]*?```/, drawn));
  expect(/```mermaid[\s\S]*?```/.exec(readFileSync(file, 'utf8'))?.[0]).toBe(drawn);
});

test('every state of the machine is explained, and has a way out', () => {
  const text = readFileSync(file, 'utf8');
  const states = new Set(all.flatMap(({ from, to }) => [from, to]));
  for (const state of states) {
    expect([state, text.includes(`| \`${state}\``)]).toEqual([state, true]);
    expect([state, all.some(({ from }) => from === state)]).toEqual([state, true]);
  }
});
