/**
 * How many servers may start at once: as many as the machine can handle. The number grows while processors are idle, because
 * then the starting servers wait for something else, such as the network. It also grows by one with each quick start, as the
 * window of a TCP connection does: on a busy machine, processors are never idle, but quick servers need not wait. Memory limits it.
 * Not here: the queue of starts (start-gate.ts).
 *
 * Invariant: the result is at least the number of processors and at most `startsMax`.
 */
import { availableParallelism, cpus } from 'node:os';

export interface MachineLoad {
  /** Share of idle processor time since the last call, 0 to 1. */
  idleShare(): number;
  freeBytes(): number;
}

const startsMax = 64;
/** Initial limit: enough starts to keep all processors busy. */
const startsPerProcessor = 4;
const idleShareMin = 0.1;
/** A start that ended within this time has hardly slowed the others down. */
const quickMs = 150;
/** Memory that a starting server is assumed to need. */
const bytesPerStart = 64 * 1024 * 1024;
export const paceMs = 50;

export class StartPace {
  readonly #load: MachineLoad;
  readonly #processors: number;
  #starts: number;

  constructor(load: MachineLoad, processors = availableParallelism()) {
    this.#load = load;
    this.#processors = processors;
    this.#starts = this.#first;
  }

  get #first(): number {
    return Math.min(startsMax, startsPerProcessor * this.#processors);
  }

  /** Call it when starts begin to queue: idle time before that says nothing. */
  reset(): void {
    this.#starts = this.#first;
    this.#load.idleShare();
  }

  /** Call it every `paceMs` while starts wait. */
  look(): void {
    if (this.#load.idleShare() >= idleShareMin) this.#starts = Math.min(startsMax, 2 * this.#starts);
  }

  /** Call it when a start has ended. */
  ended(tookMs: number): void {
    if (tookMs < quickMs) this.#starts = Math.min(startsMax, this.#starts + 1);
  }

  get concurrent(): number {
    const fitting = Math.floor(this.#load.freeBytes() / bytesPerStart);
    return Math.max(this.#processors, Math.min(this.#starts, fitting));
  }
}

/** All processors are busy, and memory is free. */
export const steadyLoad: MachineLoad = { idleShare: () => 0, freeBytes: () => Number.POSITIVE_INFINITY };

export function systemLoad(): MachineLoad {
  let before = { idle: 0, all: 0 };
  return {
    idleShare() {
      const now = { idle: 0, all: 0 };
      for (const { times } of cpus()) {
        now.idle += times.idle;
        now.all += times.idle + times.user + times.sys + times.nice + times.irq;
      }
      const share = now.all > before.all ? (now.idle - before.idle) / (now.all - before.all) : 0;
      before = now;
      return share;
    },
    freeBytes: () => process.availableMemory(),
  };
}
