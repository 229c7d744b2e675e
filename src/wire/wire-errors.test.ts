import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import type { OutboundFrame } from './channel.js';
import { lost } from './wire-errors.js';

const ended = new HostError('transport', 'the connection broke', { reason: 'ECONNRESET' });
const frame = (phase: OutboundFrame['phase']) => ({ phase }) as OutboundFrame;

describe('W24 the error of a request whose connection was lost', () => {
  test.each([
    ['queued', 'not_executed'],
    ['writing', 'uncertain'],
    ['written', 'uncertain'],
  ] as const)('a request in phase %s is %s', (phase, execution) => {
    expect(lost('s', ended, frame(phase)).details).toMatchObject({ phase, execution, reason: 'ECONNRESET' });
  });

  test('a request that was never accepted did not run', () => {
    expect(lost('s', ended).details).toMatchObject({ phase: 'queued', execution: 'not_executed' });
  });

  test('the hint says whether it is safe to send the request again', () => {
    expect(lost('s', ended, frame('queued')).hint).toContain('did not run');
    expect(lost('s', ended, frame('writing')).hint).toContain('may have run');
  });
});
