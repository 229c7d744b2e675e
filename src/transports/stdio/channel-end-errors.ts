/**
 * Errors for the end of a stdio channel: for the channel, for each frame in progress, and for later frames.
 * Invariant: only a frame that was still queued is `not_executed`.
 */
import { HostError, type SendPhase } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { inboundTooLarge } from '../../wire/wire-errors.js';
import type { ChildExit } from './child.js';

export type ChannelEnd = 'exit' | 'stdin_closed' | 'stdout_closed' | 'frame_too_large' | 'closed';

const DESCRIPTIONS: Readonly<Record<ChannelEnd, string>> = {
  exit: 'exited',
  stdin_closed: 'closed its input',
  stdout_closed: 'closed its output',
  frame_too_large: 'sent a message that is too large',
  closed: 'was stopped',
};

export function channelEndError(
  server: string,
  ending: ChannelEnd,
  exit: ChildExit | undefined,
  lastLine: string,
  lineBytes?: number,
): HostError {
  const quoted = lastLine === '' ? '' : `; last line on stderr: ${lastLine}`;
  const facts = { server, reason: ending, execution: 'uncertain', ...exitFacts(exit) } as const;
  if (ending === 'frame_too_large') return inboundTooLarge(server, lineBytes ?? LIMITS.frameBytes);
  const more = quoted === '' ? {} : { hint: `hostler logs ${server} shows the rest of its stderr` };
  return new HostError('transport', `server '${server}' ${describe(ending, exit)}${quoted}`, { ...facts, ...more });
}

/** Error for a partly written frame, or for a frame sent after the end (`queued`). */
export function frameError(
  server: string,
  ending: ChannelEnd,
  exit: ChildExit | undefined,
  phase: SendPhase,
): HostError {
  const when = phase === 'queued' ? 'before the request was sent' : 'while the request was being sent';
  return new HostError('transport', `server '${server}' ${describe(ending, exit)} ${when}`, {
    server,
    reason: ending,
    phase,
    execution: phase === 'queued' ? 'not_executed' : 'uncertain',
    ...exitFacts(exit),
  });
}

function describe(ending: ChannelEnd, exit: ChildExit | undefined): string {
  if (ending !== 'exit' || !exit) return DESCRIPTIONS[ending];
  return exit.signal === undefined ? `exited with code ${exit.exitCode}` : `was ended by ${exit.signal}`;
}

function exitFacts(exit: ChildExit | undefined): { exitCode?: number; signal?: string } {
  return {
    ...(exit?.exitCode === undefined ? {} : { exitCode: exit.exitCode }),
    ...(exit?.signal === undefined ? {} : { signal: exit.signal }),
  };
}
