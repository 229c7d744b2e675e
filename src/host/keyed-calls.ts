/**
 * Calls with an `idempotencyKey`: they run once for each key of a principal.
 * Not here: remembering keys. `KeyedCalls` is injected, because the log of calls is in a folder below.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { HostError } from '../kernel/errors.js';
import { embedder } from '../policy/operation.js';
import type { ToolArguments } from '../session/session.js';
import type { JsonText } from '../wire/channel.js';
import type { HostCallOptions, ToolResult } from './host-interface.js';
import { argumentsText, invalidCall, invalidKey, noKeyedCalls } from './operation-checks.js';
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
  /** A call that may have run before a restart may run again. */
  isRepeatable(): boolean;
  execute(signal: CancelSignal, deadlineMs: number | undefined): Promise<ToolResult>;
}

export interface KeyedCalls {
  /** The key is recorded here, or its call runs. */
  knows(call: KeyedCall): Promise<boolean>;
  run(call: KeyedCall): Promise<ToolResult>;
  /** Running calls have `graceMs` to end; 0 by default. */
  close(graceMs?: number): Promise<void>;
}

/** A key stays where it was recorded: another log would run its call again. */
export function ownFirst(
  own: KeyedCalls | undefined,
  shared: KeyedCalls | undefined,
): Pick<KeyedCalls, 'run'> | undefined {
  if (!own || !shared) return own ?? shared;
  return { run: async (call) => ((await own.knows(call)) ? own : shared).run(call) };
}

export async function callOnce(
  calls: Pick<KeyedCalls, 'run'> | undefined,
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
  if (!calls) throw noKeyedCalls(server);
  return calls.run({
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
