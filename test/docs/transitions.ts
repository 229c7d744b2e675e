/**
 * Finds the transitions of the server state machine by running it: every kind of event in every reachable state, until no new state
 * is found.
 */
import { defaultPlan, type RestartPlan } from '../../src/supervisor/restart-plan.js';
import {
  initialState,
  type ServerEvent,
  type ServerState,
  type StepContext,
  step,
} from '../../src/supervisor/server-state.js';

export interface Transition {
  readonly from: ServerState['kind'];
  readonly event: string;
  readonly to: ServerState['kind'];
}

const reason = { code: 'transport', message: 'gone' };

/** Times at which the outcome may differ: now, and after each kind of wait. */
const waitsMs = [0, 6_000, 31_000, 400_000];

function eventsFor({ run }: ServerState): [string, ServerEvent][] {
  const plain = ['wanted', 'start', 'stop', 'reload', 'disable', 'enable', 'token_changed', 'idle', 'woke'] as const;
  const ofRun = ['opened', 'closed', 'call_succeeded', 'missed', 'answered'] as const;
  const failures = ['transient', 'permanent', 'auth'] as const;
  return [
    ...plain.map((kind): [string, ServerEvent] => [kind === 'woke' ? 'timer' : kind, { kind }]),
    ...ofRun.map((kind): [string, ServerEvent] => [kind, { kind, run }]),
    ...failures.map((failure): [string, ServerEvent] => [
      `open failed (${failure})`,
      { kind: 'open_failed', run, failure, reason },
    ]),
    ...failures.map((failure): [string, ServerEvent] => [`lost (${failure})`, { kind: 'lost', run, failure, reason }]),
  ];
}

/** The part of a state that affects transitions: everything except numbers that only grow. */
const shapeOf = ({ run: _run, sinceMs: _since, ledger, ...rest }: ServerState): string =>
  JSON.stringify([
    { ...rest, retryAtMs: undefined, nextProbeAtMs: undefined, nextWakeAtMs: undefined },
    Math.min(ledger.restartsAtMs.length, 6),
    Math.min(ledger.unprovenStarts, 6),
  ]).replace(/"\w+AtMs":[\d.]+/g, '');

export function transitions(plan: Partial<RestartPlan> = {}): Transition[] {
  const found = new Map<string, Transition>();
  const seen = new Set<string>();
  const queue: { state: ServerState; nowMs: number }[] = [];
  const visit = (state: ServerState, nowMs: number) => {
    const shape = shapeOf(state);
    if (seen.has(shape)) return;
    seen.add(shape);
    queue.push({ state, nowMs });
  };
  visit(initialState(0, true), 0);
  for (let next = queue.shift(); next; next = queue.shift()) {
    for (const waitMs of waitsMs) {
      for (const isLazy of [true, false]) {
        const nowMs = next.nowMs + waitMs;
        const context: StepContext = { nowMs, plan: { ...defaultPlan, ...plan }, random: () => 0.5, isLazy };
        for (const [event, what] of eventsFor(next.state)) {
          const [after] = step(next.state, what, context);
          if (after.kind !== next.state.kind) {
            const transition = { from: next.state.kind, event, to: after.kind };
            found.set(JSON.stringify(transition), transition);
          }
          visit(after, nowMs);
        }
      }
    }
  }
  return [...found.values()].sort((a, b) =>
    `${a.from} ${a.to} ${a.event}`.localeCompare(`${b.from} ${b.to} ${b.event}`),
  );
}

/** Draws one arrow for each pair of states, labelled with its events. */
export function diagram(all: readonly Transition[]): string {
  const arrows = new Map<string, string[]>();
  for (const { from, event, to } of all) {
    const arrow = `${from} --> ${to}`;
    arrows.set(arrow, [...(arrows.get(arrow) ?? []), event]);
  }
  const lines = [...arrows].map(([arrow, events]) => `  ${arrow}: ${events.join(', ')}`);
  return ['```mermaid', 'stateDiagram-v2', '  [*] --> registered', ...lines, '```'].join('\n');
}
