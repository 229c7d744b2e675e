/**
 * Calls with an `idempotencyKey`: they run once for each key of a principal.
 * Not here: remembering keys. `KeyedCalls` is injected, because the log of calls is in a folder below.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { embedder } from '../policy/operation.js';
import type { ToolArguments } from '../session/session.js';
import type { JsonText } from '../wire/channel.js';
import type { HostCallOptions, ToolResult } from './host-interface.js';
import { argumentsText, hostClosed, invalidCall, invalidKey, noKeyedCalls } from './operation-checks.js';
import type { Operations } from './operations.js';

export interface KeyedCall {
  readonly principal: string;
  readonly key: string;
  readonly server: string;
  readonly tool: string;
  /** One JSON object. The same key with other arguments is a conflict. */
  readonly args: JsonText;
  readonly deadlineMs: number | undefined;
  readonly signal: CancelSignal | undefined;
  /** True: if the call may have run before a restart, it may run again. */
  isRepeatable(): boolean;
  execute(signal: CancelSignal, deadlineMs: number | undefined): Promise<ToolResult>;
}

export interface KeyedCalls {
  /** True if the key is recorded in this log, or if its call is running. */
  knows(call: KeyedCall): Promise<boolean>;
  run(call: KeyedCall): Promise<ToolResult>;
  /** Running calls have `graceMs` to end; 0 by default. */
  close(graceMs?: number): Promise<void>;
}

/** The logs of a host: its own, and one that it shares with other hosts. */
export class KeyedCallLogs {
  #own: KeyedCalls | undefined;
  #shared: KeyedCalls | undefined;
  #isClosed = false;

  use(calls: KeyedCalls, scope: 'own' | 'shared'): void {
    if (scope === 'own') this.#own = calls;
    else this.#shared = calls;
  }

  /** A key stays in the log where it was recorded: another log would run its call again. */
  async run(call: KeyedCall): Promise<ToolResult> {
    // The first call opens the log, so a call after `close` would leave it open. Uncertain: an earlier call with this key may
    // have run.
    if (this.#isClosed) throw hostClosed(call.server).with({ execution: 'uncertain' });
    const own = this.#own;
    const shared = this.#shared;
    const log = own && shared ? ((await own.knows(call).catch(throwInDoubt)) ? own : shared) : (own ?? shared);
    if (!log) throw noKeyedCalls(call.server);
    return log.run(call);
  }

  /** Closes both logs, even if closing one fails. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const closed = await Promise.allSettled([this.#shared?.close(), this.#own?.close()]);
    for (const each of closed) if (each.status === 'rejected') throw each.reason;
  }
}

/** Adds to an error that an earlier call may have run: a log that cannot be read does not show whether it has the key. */
export function throwInDoubt(error: unknown): never {
  if (!isHostError(error)) throw error;
  const { message, hint } = error;
  const next = 'make the call again with the same key';
  throw error.with({
    execution: 'uncertain',
    message: `${message}; an earlier call with this key may have run`,
    hint: hint === undefined ? next : `${hint}; then ${next}`,
  });
}

export async function callOnce(
  logs: KeyedCallLogs,
  operations: Operations,
  isRepeatable: () => boolean,
  server: string,
  tool: string,
  args: ToolArguments,
  options: HostCallOptions,
): Promise<ToolResult> {
  const { idempotencyKey: key = '', principal = embedder, deadlineMs, signal } = options;
  const refusal = invalidCall(server, tool, options) ?? invalidKey(server, key);
  const text = refusal ?? argumentsText(args, server, tool);
  if (text instanceof HostError) throw text;
  return logs.run({
    ...{ principal: principal.id, key, server, tool, args: text, deadlineMs, signal, isRepeatable },
    execute: (ownSignal, leftMs) => {
      const deadline = leftMs === undefined ? {} : { deadlineMs: leftMs };
      return operations.call(server, tool, text, {
        ...options,
        ...deadline,
        signal: ownSignal,
        isChecked: true,
      });
    },
  });
}
