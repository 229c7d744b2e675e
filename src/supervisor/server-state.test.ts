import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { defaultPlan, emptyLedger, type RestartPlan } from './restart-plan.js';
import {
  type Effect,
  initialState,
  type ServerEvent,
  type ServerState,
  type StepContext,
  step,
} from './server-state.js';

const reason = { code: 'transport', message: 'exited with code 1' };

/** Drives one server; the timer fires when its time has come. */
function drive({
  plan = {},
  isLazy = true,
  isEnabled = true,
  isOneShot = false,
}: {
  plan?: Partial<RestartPlan>;
  isLazy?: boolean;
  isEnabled?: boolean;
  isOneShot?: boolean;
} = {}) {
  let nowMs = 0;
  let state: ServerState = initialState(0, isEnabled);
  let armedAtMs: number | undefined;
  const opened: number[] = [];
  const closing = new Set<number>();
  const apply = (effects: readonly Effect[]) => {
    for (const effect of effects) {
      if (effect.do === 'open') opened.push(effect.run);
      else if (effect.do === 'close') closing.add(effect.run);
      else armedAtMs = effect.do === 'arm' ? effect.atMs : undefined;
    }
  };
  const shared = { plan: { ...defaultPlan, ...plan }, random: () => 0.5, isLazy, isOneShot };
  const context = (): StepContext => ({ nowMs, ...shared });
  const on = (event: ServerEvent) => {
    const [next, effects] = step(state, event, context());
    state = next;
    apply(effects);
    return state;
  };
  const advance = (byMs: number) => {
    const untilMs = nowMs + byMs;
    while (armedAtMs !== undefined && armedAtMs <= untilMs) {
      nowMs = Math.max(nowMs, armedAtMs);
      armedAtMs = undefined;
      on({ kind: 'woke' });
    }
    nowMs = untilMs;
    return state;
  };
  const run = () => state.run;
  const self = {
    on,
    advance,
    run,
    opened,
    closing,
    state: () => state,
    armedAtMs: () => armedAtMs,
    nowMs: () => nowMs,
    failToOpen: (failure: 'transient' | 'permanent' | 'auth' = 'transient', isFree = false) =>
      on({ kind: 'open_failed', run: run(), failure, reason, isFree }),
    up: () => on({ kind: 'opened', run: run() }),
    lose: (failure: 'transient' | 'auth' = 'transient') => {
      on({ kind: 'lost', run: run(), failure, reason });
      return on({ kind: 'closed', run: run() });
    },
  };
  return self;
}

describe('starting', () => {
  test('a lazy server waits until a call needs it, and is opened once for any number of calls', () => {
    const server = drive();
    expect(server.state().kind).toBe('registered');
    for (let i = 0; i < 10; i++) server.on({ kind: 'wanted' });
    expect([server.state().kind, server.opened]).toEqual(['connecting', [1]]);
  });

  test('a failed start is repeated after a delay, not at the next call', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.failToOpen();
    for (let i = 0; i < 100; i++) server.on({ kind: 'wanted' });
    expect([server.state().kind, server.opened]).toEqual(['backing_off', [1]]);
    server.advance(100);
    expect(server.opened).toEqual([1, 2]);
  });

  test('W25 if a server asks for a pause at its start, neither the timer nor calls start it earlier', () => {
    const server = drive();
    const refuse = () =>
      server.on({ kind: 'open_failed', run: server.run(), failure: 'transient', reason, pauseMs: 120_000 });
    server.on({ kind: 'wanted' });
    for (let starts = 1; starts <= 8; starts++) {
      refuse();
      expect(['backing_off', 'parked']).toContain(server.state().kind);
      const untilMs = server.nowMs() + 120_000;
      for (const byMs of [1_000, 60_000, 58_999]) {
        server.advance(byMs);
        server.on({ kind: 'wanted' });
      }
      expect([server.nowMs(), server.opened.length]).toEqual([untilMs - 1, starts]);
      server.advance(300_000);
      expect(server.opened.length).toBe(starts + 1);
    }
    expect(server.on({ kind: 'stop' }).kind).toBe('stopping');
  });

  test('the first start of a package runner is not charged', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.failToOpen('transient', true);
    expect(server.state()).toMatchObject({ kind: 'backing_off', ledger: emptyLedger });
  });

  test('a start that can never work is parked after one try, with its reason', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.failToOpen('permanent');
    expect(server.state()).toMatchObject({ kind: 'parked', reason });
    server.advance(1_000);
    expect(server.opened).toEqual([1]);
  });
});

describe('losing a run', () => {
  test('charges one restart, closes the old run, and opens the next only after that', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.up();
    for (let i = 0; i < 50; i++) server.on({ kind: 'lost', run: 1, failure: 'transient', reason });
    expect(server.state()).toMatchObject({ kind: 'closing', ledger: { restartsAtMs: [0] } });
    server.advance(60_000);
    expect(server.opened).toEqual([1]);
    server.on({ kind: 'closed', run: 1 });
    server.advance(0);
    expect(server.opened).toEqual([1, 2]);
  });

  test('D-08 an event of an older run changes nothing', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.up();
    server.lose();
    server.advance(100);
    server.up();
    const before = server.state();
    for (const event of [
      { kind: 'lost', run: 1, failure: 'transient', reason },
      { kind: 'opened', run: 1 },
      { kind: 'closed', run: 1 },
      { kind: 'call_succeeded', run: 1 },
      { kind: 'open_failed', run: 1, failure: 'permanent', reason },
    ] as const) {
      expect(server.on(event)).toBe(before);
    }
  });

  test('a failure of the whole host is not charged, but the delay grows', () => {
    let nowMs = 0;
    const frozen = () => ({ nowMs, plan: defaultPlan, random: () => 1, isLazy: true, isFrozen: true });
    let [state] = step(initialState(0, true), { kind: 'wanted' }, frozen());
    const waits = [1, 2, 3, 4, 5, 6, 7, 8].map((run) => {
      [state] = step(state, { kind: 'open_failed', run, failure: 'transient', reason }, frozen());
      const waitMs = state.kind === 'backing_off' ? state.retryAtMs - nowMs : -1;
      nowMs += waitMs;
      [state] = step(state, { kind: 'woke' }, frozen());
      return waitMs;
    });
    expect(waits).toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    expect(state.ledger).toMatchObject({ restartsAtMs: [], unprovenStarts: 0, failedProbes: 0 });
  });

  test('a failure of the whole host does not delay the first restart of a proven server', () => {
    const frozen = (nowMs: number) => ({ nowMs, plan: defaultPlan, random: () => 0.5, isLazy: true, isFrozen: true });
    let [state] = step(initialState(0, true), { kind: 'wanted' }, frozen(0));
    [state] = step(state, { kind: 'opened', run: 1 }, frozen(0));
    [state] = step(state, { kind: 'woke' }, frozen(30_000));
    [state] = step(state, { kind: 'lost', run: 1, failure: 'transient', reason }, frozen(30_000));
    expect(state).toMatchObject({ kind: 'closing', next: { kind: 'backing_off', retryAtMs: 30_050 } });
    expect(state.ledger.restartsAtMs).toEqual([]);
  });
});

describe('proving', () => {
  test.each([
    ['a run is proven after 30 s', (server: ReturnType<typeof drive>) => server.advance(30_000), true],
    ['a run is not proven after 29 s', (server: ReturnType<typeof drive>) => server.advance(29_000), false],
    [
      'a run is proven after a call and 5 s',
      (server: ReturnType<typeof drive>) => {
        server.on({ kind: 'call_succeeded', run: 1 });
        server.advance(5_000);
      },
      true,
    ],
    [
      'a run is not proven after a call and 4 s',
      (server: ReturnType<typeof drive>) => {
        server.on({ kind: 'call_succeeded', run: 1 });
        server.advance(4_000);
      },
      false,
    ],
  ])('%s', (_how, live, isProven) => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.up();
    live(server);
    expect(server.state()).toMatchObject({ kind: 'ready', isProven });
  });

  test('D-33 a server that comes up and dies a second later for an hour is parked, not restarted for ever', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    while (server.nowMs() < 3_600_000) {
      if (server.state().kind === 'connecting') {
        server.up();
        server.on({ kind: 'call_succeeded', run: server.run() });
        server.advance(1_000);
        if (server.state().kind === 'ready') server.lose();
      } else {
        server.advance(1_000);
      }
    }
    expect(server.state().kind).toBe('parked');
    // Six within the budget, then probes at 60, 120, 240 and each 300 seconds.
    expect(server.opened.length).toBeLessThanOrEqual(6 + 3 + Math.ceil(3_600 / 240));
  });
});

describe('parked', () => {
  function parked(plan: Partial<RestartPlan> = {}) {
    const server = drive({ plan });
    server.on({ kind: 'wanted' });
    while (server.state().kind === 'connecting') {
      server.failToOpen();
      if (server.state().kind === 'backing_off') server.advance(5_000);
    }
    return server;
  }

  test('after the sixth start in a row that was never proven', () => {
    expect(parked().opened).toHaveLength(6);
  });

  test('D-34 the server is probed with growing waits, for ever', () => {
    const server = parked();
    const probes: number[] = [];
    for (let i = 0; i < 6; i++) {
      const before = server.nowMs();
      server.advance((server.armedAtMs() as number) - before);
      probes.push(Math.round((server.nowMs() - before) / 1_000));
      server.failToOpen();
    }
    expect(probes.slice(1)).toEqual([120, 240, 300, 300, 300]);
  });

  test('a call starts it, but not within five seconds and only once between two probes', () => {
    const server = parked();
    const starts = () => server.opened.length;
    const before = starts();
    server.on({ kind: 'wanted' });
    expect(starts()).toBe(before);
    server.advance(5_000);
    server.on({ kind: 'wanted' });
    expect(starts()).toBe(before + 1);
    server.failToOpen();
    for (let i = 0; i < 40; i++) {
      server.advance(1_000);
      server.on({ kind: 'wanted' });
    }
    expect(starts()).toBe(before + 1);
  });

  test('a successful probe makes it ready; if it then dies, it is parked again at once', () => {
    const server = parked();
    server.advance(72_000);
    server.up();
    expect(server.state().kind).toBe('ready');
    server.lose();
    expect(server.state().kind).toBe('parked');
  });

  test('a reload and a new token start it', () => {
    for (const kind of ['start', 'token_changed'] as const) {
      const server = parked();
      server.on({ kind });
      expect(server.state().kind).toBe('connecting');
    }
  });

  test('AC-H2 with onExhausted "eject" only a reload brings it back', () => {
    const server = parked({ onExhausted: 'eject' });
    expect([server.state().kind, server.armedAtMs()]).toEqual(['ejected', undefined]);
    server.advance(86_400_000);
    server.on({ kind: 'wanted' });
    expect(server.state().kind).toBe('ejected');
    server.on({ kind: 'reload' });
    expect(server.state()).toMatchObject({ kind: 'registered', ledger: emptyLedger });
  });
});

describe('authorization', () => {
  test('after a refused token the server waits for a new one, and retries only slowly', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.failToOpen('auth');
    expect(server.state().kind).toBe('auth_required');
    server.on({ kind: 'wanted' });
    expect(server.opened).toEqual([1]);
    server.on({ kind: 'token_changed' });
    expect(server.opened).toEqual([1, 2]);
  });

  const wakes: [string, (server: ReturnType<typeof drive>) => unknown][] = [
    ['a new token', (server) => server.on({ kind: 'token_changed' })],
    ['its timer', (server) => server.advance(defaultPlan.probeMsMax)],
  ];
  const refusals: [string, (server: ReturnType<typeof drive>) => unknown][] = [
    ['refused at the start', (server) => server.failToOpen('auth')],
    [
      'refused while it ran',
      (server) => {
        server.up();
        server.lose('auth');
      },
    ],
  ];
  const table = refusals.flatMap(([was, refuse]) => wakes.map(([by, wake]) => ({ was, refuse, by, wake })));

  test.each(table)(
    'D-33 a failure, after the server was $was and woken by $by, is charged as any other',
    ({ refuse, wake }) => {
      for (const onExhausted of ['park', 'eject'] as const) {
        const server = drive({ plan: { onExhausted } });
        server.on({ kind: 'wanted' });
        refuse(server);
        expect(server.state()).toMatchObject({ kind: 'auth_required', ledger: emptyLedger });
        wake(server);
        server.failToOpen();
        expect(server.state()).toMatchObject({
          kind: 'backing_off',
          ledger: { restartsAtMs: [server.nowMs()], unprovenStarts: 1, parked: undefined },
        });
        // The server has the rest of its budget, not more.
        for (let i = 0; i < 5; i++) {
          expect(server.state().kind).toBe('backing_off');
          server.advance(5_000);
          server.failToOpen();
        }
        expect(server.state().kind).toBe(onExhausted === 'park' ? 'parked' : 'ejected');
      }
    },
  );

  test.each(table)(
    'D-33 the loss of a run, after the server was $was and woken by $by, is charged as any other',
    ({ refuse, wake }) => {
      const server = drive();
      server.on({ kind: 'wanted' });
      refuse(server);
      wake(server);
      server.up();
      server.lose();
      expect(server.state()).toMatchObject({ kind: 'backing_off', ledger: { unprovenStarts: 1 } });
    },
  );

  test.each(wakes)(
    'D-33 a server that was parked before its token was refused starts as a probe when started by %s',
    (_by, wake) => {
      const server = drive();
      server.on({ kind: 'wanted' });
      server.failToOpen('permanent');
      server.advance(72_000);
      server.failToOpen('auth');
      expect(server.state().kind).toBe('auth_required');
      wake(server);
      server.failToOpen();
      expect(server.state()).toMatchObject({ kind: 'parked', ledger: { failedProbes: 1, restartsAtMs: [] } });
    },
  );
});

describe('stopping', () => {
  test('D-13 stopped is sticky: neither calls nor timers bring it back', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.up();
    server.on({ kind: 'stop' });
    server.on({ kind: 'closed', run: 1 });
    server.on({ kind: 'wanted' });
    server.on({ kind: 'token_changed' });
    server.advance(86_400_000);
    expect([server.state().kind, server.opened]).toEqual(['stopped', [1]]);
    server.on({ kind: 'start' });
    expect(server.opened).toEqual([1, 2]);
  });

  test('a stop while connecting ends the attempt, and its late success changes nothing', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.on({ kind: 'stop' });
    server.up();
    expect([server.state().kind, [...server.closing]]).toEqual(['stopping', [1]]);
    server.on({ kind: 'closed', run: 1 });
    expect(server.state().kind).toBe('stopped');
  });

  test('a start during a stop takes effect after the stop', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.up();
    server.on({ kind: 'stop' });
    server.on({ kind: 'start' });
    expect(server.opened).toEqual([1]);
    server.on({ kind: 'closed', run: 1 });
    expect(server.opened).toEqual([1, 2]);
  });

  test('an idle server is closed without a charge and starts again when wanted', () => {
    const server = drive();
    server.on({ kind: 'wanted' });
    server.up();
    server.on({ kind: 'idle' });
    server.on({ kind: 'closed', run: 1 });
    expect(server.state()).toMatchObject({ kind: 'registered', ledger: emptyLedger });
    server.on({ kind: 'wanted' });
    expect(server.opened).toEqual([1, 2]);
  });

  test.each(['start', 'stop', 'reload'] as const)('a %s while it is being disabled leaves it disabled', (kind) => {
    const server = drive({ isLazy: false });
    server.on({ kind: 'start' });
    server.up();
    server.on({ kind: 'disable' });
    server.on({ kind });
    server.on({ kind: 'closed', run: 1 });
    expect([server.state().kind, server.opened]).toEqual(['disabled', [1]]);
  });

  test('a disabled server does nothing until it is enabled', () => {
    const server = drive({ isEnabled: false, isLazy: false });
    for (const kind of ['wanted', 'start', 'reload', 'token_changed'] as const) server.on({ kind });
    expect(server.opened).toEqual([]);
    server.on({ kind: 'enable' });
    expect(server.opened).toEqual([1]);
  });
});

describe('a one-shot server', () => {
  const oneShot = () => {
    const server = drive({ isLazy: false, isOneShot: true });
    server.on({ kind: 'wanted' });
    return server;
  };
  /** Every event that restarts any other server. */
  const bringBack = (server: ReturnType<typeof drive>) => {
    for (const kind of ['wanted', 'start', 'reload', 'token_changed'] as const) server.on({ kind });
    server.advance(3_600_000);
  };

  test.each(['transient', 'permanent', 'auth'] as const)('E23 is stopped by a start that fails (%s)', (failure) => {
    const server = oneShot();
    server.failToOpen(failure);
    expect([server.state().kind, server.armedAtMs()]).toEqual(['stopped', undefined]);
    bringBack(server);
    expect([server.state().kind, server.opened]).toEqual(['stopped', [1]]);
  });

  test('E23 is stopped after its loss, once it is closed, without a charge', () => {
    const server = oneShot();
    server.up();
    server.on({ kind: 'lost', run: 1, failure: 'transient', reason });
    bringBack(server);
    expect([server.state().kind, [...server.closing]]).toEqual(['closing', [1]]);
    server.on({ kind: 'closed', run: 1 });
    bringBack(server);
    expect([server.state().kind, server.opened, server.state().ledger]).toEqual(['stopped', [1], emptyLedger]);
  });

  test('E23 is neither stopped for idleness nor opened again by a reload', () => {
    const server = oneShot();
    server.up();
    server.on({ kind: 'idle' });
    server.on({ kind: 'reload' });
    expect([server.state().kind, [...server.closing]]).toEqual(['ready', []]);
    server.on({ kind: 'stop' });
    server.on({ kind: 'closed', run: 1 });
    bringBack(server);
    expect([server.state().kind, server.opened]).toEqual(['stopped', [1]]);
  });
});

describe('C-INV whatever happens in whatever order', () => {
  const kinds = [
    ...['wanted', 'start', 'stop', 'reload', 'disable', 'enable', 'token_changed', 'idle', 'advance'],
    ...['opened', 'closed', 'call_succeeded', 'missed', 'answered', 'open_failed', 'lost'],
  ] as const;
  const event = fc.record({
    kind: fc.constantFrom(...kinds),
    age: fc.nat({ max: 2 }),
    failure: fc.constantFrom('transient', 'permanent', 'auth'),
    byMs: fc.constantFrom(0, 10, 1_000, 6_000, 31_000, 400_000),
  });

  const flags = [fc.boolean(), fc.boolean(), fc.boolean()] as const;

  /** Parked or ejected, or about to be. */
  const isVerdict = (state: ServerState): boolean =>
    ['parked', 'ejected'].includes(state.kind === 'closing' ? state.next.kind : state.kind);

  test('a timer or event can always restart the server, runs never overlap, and run numbers only grow', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 60 }), ...flags, (events, isLazy, ejects, isOneShot) => {
        const server = drive({ isLazy, isOneShot, plan: { onExhausted: ejects ? 'eject' : 'park' } });
        let open = 0;
        for (const { kind, age, failure, byMs } of events) {
          const run = Math.max(0, server.run() - age);
          const before = server.state();
          if (kind === 'advance') server.advance(byMs);
          else if (kind === 'open_failed' || kind === 'lost') server.on({ kind, run, failure, reason } as ServerEvent);
          else server.on({ kind, run } as ServerEvent);
          const state = server.state();
          expect(server.opened).toEqual(server.opened.map((_, i) => i + 1));
          open = server.opened.length;
          if (isOneShot) expect(open).toBeLessThanOrEqual(1);
          expect(state.run).toBe(open);
          const isOut = ['disabled', 'stopped', 'ejected'].includes(state.kind);
          const hasRun = ['connecting', 'ready', 'suspect', 'closing', 'stopping'].includes(state.kind);
          const isArmed = server.armedAtMs() !== undefined;
          // The next caller starts a registered server: `wanted` opens it at once.
          if (!isOut && !hasRun && state.kind !== 'registered') expect(isArmed).toBe(true);
          if (isOut) expect(isArmed).toBe(false);
          // A server is parked or ejected only after a permanent failure, a spent budget, or a failed probe.
          if (!isVerdict(before) && isVerdict(state)) {
            const { restartsAtMs, unprovenStarts } = state.ledger;
            const isSpent = restartsAtMs.length > defaultPlan.maxRestarts || unprovenStarts >= 6;
            const isPermanent = kind === 'open_failed' && failure === 'permanent';
            expect(isPermanent || isSpent || before.ledger.parked !== undefined).toBe(true);
          }
        }
      }),
      { numRuns: 5_000 },
    );
  }, 180_000);
});
