/**
 * Brings the failures of this host's servers to the next one: reads what is there when a server is added, and writes what
 * changes.
 * Not here: what is remembered (supervisor/history.ts), the table (histories-table.ts).
 *
 * Invariant: a change is written in its own tick, so that it is there whenever the host is killed. When many come within
 * `gatherMs`, all after the first `immediateMax` are written together: a thousand servers that fail at once cost a few
 * writes. What waits is bounded by the servers of the host. A write that fails is told and costs nothing else: the next
 * change of that server brings all of its history again.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import { ledgerOf, recordOf } from '../../supervisor/history.js';
import type { History } from '../../supervisor/ports.js';
import { emptyLedger, type Ledger, type RestartPlan } from '../../supervisor/restart-plan.js';
import type { Histories, HistoryRow } from './histories-table.js';

const gatherMs = 100;
const immediateMax = 8;
/** In one message. */
const namedMax = 5;

export class HistoryKeeper {
  readonly #histories: Histories;
  readonly #clock: Clock;
  readonly #onProblem: (error: unknown) => void;
  readonly #unwritten = new Map<string, HistoryRow>();
  /** Since the timer was set. */
  #writes = 0;
  #cancelTimer: Cancel | undefined;

  constructor(histories: Histories, clock: Clock, onProblem: (error: unknown) => void) {
    this.#histories = histories;
    this.#clock = clock;
    this.#onProblem = onProblem;
  }

  /** The history of one server of one definition. State is never shared through a name alone. */
  of(server: string, fingerprint: string, plan: RestartPlan): History {
    const key = compositeKey(fingerprint, server);
    if (this.#unwritten.has(key)) this.#save();
    const ledger = this.#load(server, fingerprint, plan);
    let isKept = ledger !== emptyLedger;
    return {
      ledger,
      remember: (after) => {
        const record = recordOf(after, this.#clock);
        if (!record && !isKept) return;
        isKept = record !== undefined;
        this.#unwritten.set(key, { server, fingerprint, record });
        if (this.#writes < immediateMax) this.#write();
      },
    };
  }

  /** Writes what waits; nothing is left to do then. */
  flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#writes = 0;
    this.#save();
  }

  #write(): void {
    this.#writes++;
    this.#save();
    this.#cancelTimer ??= this.#clock.at(this.#clock.nowMs() + gatherMs, () => {
      this.#cancelTimer = undefined;
      this.#writes = 0;
      if (this.#unwritten.size > 0) this.#write();
    });
  }

  #save(): void {
    const rows = [...this.#unwritten.values()];
    this.#unwritten.clear();
    if (rows.length === 0) return;
    try {
      this.#histories.save(rows);
    } catch (cause) {
      const names = rows.slice(0, namedMax).map(({ server }) => `server '${server}'`);
      const more = rows.length > namedMax ? ` and ${rows.length - namedMax} more` : '';
      this.#tell(`the history of ${names.join(', ')}${more} could not be written`, {
        hint: 'see that there is space in the state folder; until then a new host gives them a new budget of restarts',
        cause,
      });
    }
  }

  #load(server: string, fingerprint: string, plan: RestartPlan): Ledger {
    try {
      return ledgerOf(this.#histories.load(server, fingerprint), this.#clock, plan);
    } catch (cause) {
      this.#tell(`the history of server '${server}' could not be read`, {
        server,
        hint: `nothing is held against server '${server}'`,
        cause,
      });
      return emptyLedger;
    }
  }

  /** In a tick of its own: whoever listens may throw, and we are in the middle of a change of state. */
  #tell(message: string, options: { server?: string; hint: string; cause: unknown }): void {
    const error = new HostError('invalid_spec', message, { field: 'stateDir', reason: 'unusable_state', ...options });
    queueMicrotask(() => this.#onProblem(error));
  }
}
