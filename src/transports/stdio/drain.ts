/**
 * Waits for what a dead child left in its pipes: until stdout ends, or for a limited time when somebody else holds it.
 * stderr gets a moment more, because its last line is the reason people look for.
 */
import type { Readable } from 'node:stream';
import type { Clock } from '../../kernel/clock.js';

export const stdoutDrainMs = 200;
const stderrDrainMs = 20;

/** Calls `done` once; never later than `stdoutDrainMs` from now. */
export function drain(clock: Clock, stdout: Readable, stderr: Readable, done: () => void): void {
  const untilMs = clock.nowMs() + stdoutDrainMs;
  whenEnded(clock, stdout, untilMs, () => {
    whenEnded(clock, stderr, Math.min(untilMs, clock.nowMs() + stderrDrainMs), done);
  });
}

export function whenEnded(clock: Clock, stream: Readable, untilMs: number, done: () => void): void {
  if (isOver(stream)) return done();
  const finish = () => {
    cancel();
    stream.off('end', finish);
    stream.off('close', finish);
    done();
  };
  const cancel = clock.at(untilMs, finish);
  stream.once('end', finish);
  stream.once('close', finish);
}

const isOver = (stream: Readable) => stream.readableEnded || stream.destroyed;
