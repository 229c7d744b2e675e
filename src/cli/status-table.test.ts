import { expect, test } from 'vitest';
import type { StatusRow } from '../host/status.js';
import { noteOf } from './status-table.js';

const quiet = { circuit: 'closed', changedTools: 0, escaped: 0, noisy: false, active: false, ejected: false };

test.each([
  ['parked', { nextProbeInMs: 40_000 }, 'next try in 40s'],
  ['ejected', { ejected: true }, 'not tried again before a reload'],
])('W22 the note of a server that is %s says when it is tried next', (state, part, note) => {
  expect(noteOf({ ...quiet, state, ...part } as StatusRow)).toBe(note);
});
