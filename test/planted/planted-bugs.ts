/**
 * Real mistakes of similar hosts, each as a small change of our source, with the tests that must fail after it.
 * planted-bugs.test.ts checks that each change still applies to the source. `npm run test:long -- planted-bugs` makes the changes
 * one by one and runs those tests.
 */
interface Edit {
  readonly file: string;
  /** Occurs exactly once in the file. */
  readonly find: string;
  readonly replace: string;
}

export interface PlantedBug {
  readonly name: string;
  readonly edits: readonly Edit[];
  readonly tests: readonly string[];
}

export const plantedBugs: readonly PlantedBug[] = [
  {
    name: 'two probes',
    edits: [
      {
        file: 'src/policy/breaker.ts',
        find: `    half.trials.add(ticket);\n`,
        replace: '',
      },
    ],
    tests: ['src/policy/breaker.test.ts', 'src/policy/breaker-stage.test.ts'],
  },
  {
    name: 'each loss of one crash counts',
    edits: [
      {
        file: 'src/policy/breaker.ts',
        find: `    if (strike === 'loss' && nowMs - lostAtMs <= this.#plan.lossMs) return;\n`,
        replace: '',
      },
    ],
    tests: ['src/policy/breaker.test.ts', 'test/host/one-crash.test.ts'],
  },
  {
    name: 'only a caller finds out that a server is back',
    edits: [
      {
        file: 'src/host/server-circuit.ts',
        find: `    const isWanted = checkAtMs !== undefined && !this.#isClosed;`,
        replace: `    const isWanted = checkAtMs !== undefined && this.#isClosed;`,
      },
    ],
    tests: ['src/host/server-circuit.test.ts', 'test/host/server-away.test.ts'],
  },
  {
    name: 'restart charged per call',
    edits: [
      {
        file: 'src/supervisor/server-state.ts',
        find: `      return isUp(state) ? lost(state, event, context) : unchanged(state);`,
        replace: `      if (state.kind === 'closing') {
        const restartsAtMs = [...state.ledger.restartsAtMs, context.nowMs];
        return [{ ...state, ledger: { ...state.ledger, restartsAtMs } }, []];
      }
      return isUp(state) ? lost(state, event, context) : unchanged(state);`,
      },
    ],
    tests: ['src/supervisor/server-state.test.ts', 'src/supervisor/supervisor.test.ts'],
  },
  {
    name: 'wall clock',
    edits: [
      {
        file: 'src/supervisor/supervisor.ts',
        find: `    const nowMs = this.#clock.nowMs();
    const { random, guard, isLazy, isOneShot } = this.#options;`,
        replace: `    const nowMs = this.#clock.date().getTime();
    const { random, guard, isLazy, isOneShot } = this.#options;`,
      },
    ],
    tests: ['src/supervisor/supervisor.test.ts', 'src/supervisor/mass-failure.test.ts'],
  },
  {
    name: 'replay after write',
    edits: [
      {
        file: 'src/policy/retry.ts',
        find: `isConnectionLoss(error) && mayRunTwice(traits)`,
        replace: `isConnectionLoss(error)`,
      },
    ],
    tests: ['src/policy/retry.test.ts', 'test/simulation/host-simulation.test.ts'],
  },
  {
    name: 'ack of an older run',
    edits: [
      {
        file: 'src/supervisor/server-state.ts',
        find: `  if ('run' in event && event.run !== state.run) return unchanged(state);\n`,
        replace: '',
      },
    ],
    tests: ['src/supervisor/server-state.test.ts', 'src/supervisor/supervisor.property.test.ts'],
  },
  {
    name: 'cache key without principal',
    edits: [
      {
        file: 'src/policy/cache.ts',
        find: `isPublic ? compositeKey(hash, fingerprint)`,
        replace: `isPublic || principal ? compositeKey(hash, fingerprint)`,
      },
    ],
    tests: ['src/policy/cache.test.ts', 'src/policy/cache-stage.test.ts'],
  },
  {
    name: 'budget shared between dispatches',
    edits: [
      {
        file: 'src/policy/rate-limit.ts',
        find: `    return this.#current.run({ calls: plan.calls, spent: 0 }, run);`,
        replace: `    this.#shared ??= { calls: plan.calls, spent: 0 };
    return this.#current.run(this.#shared, run);`,
      },
      {
        file: 'src/policy/rate-limit.ts',
        find: `  readonly #current = new AsyncLocalStorage<Spending>();`,
        replace: `  readonly #current = new AsyncLocalStorage<Spending>();
  #shared: Spending | undefined;`,
      },
    ],
    tests: ['src/policy/rate-limit.test.ts'],
  },
  {
    name: 'pin stored on change',
    edits: [
      {
        file: 'src/policy/pin-records.ts',
        find: `  return changed(record, {\n    pending: version(hashes, raw, same?.at ?? at),`,
        replace: `  return changed({ ...record, approved: version(hashes, raw, same?.at ?? at) }, {\n    pending,`,
      },
    ],
    tests: ['src/policy/pins.test.ts', 'src/policy/pin-stage.test.ts'],
  },
  {
    name: 'release instead of invalidate',
    edits: [
      {
        file: 'src/supervisor/supervisor.ts',
        find: `    if (after.kind !== 'ready' && after.kind !== 'suspect') this.#acquired = undefined;\n`,
        replace: '',
      },
    ],
    tests: [
      'src/supervisor/supervisor.test.ts',
      'src/supervisor/supervisor.property.test.ts',
      'test/host/host.test.ts',
    ],
  },
  {
    name: 'kill(pid) only',
    edits: [
      {
        file: 'src/transports/stdio/process-group.ts',
        find: `trySignal(this.#kill, -pid, signal)`,
        replace: `trySignal(this.#kill, pid, signal)`,
      },
    ],
    tests: ['test/process/wrappers.test.ts', 'src/transports/stdio/process-group.test.ts'],
  },
  {
    name: 'refill on connect',
    edits: [
      {
        file: 'src/supervisor/server-state.ts',
        find: `  const ready: ServerState = { kind: 'ready', run, ledger, sinceMs: nowMs,`,
        replace: `  const ready: ServerState = { kind: 'ready', run, ledger: ledger && emptyLedger, sinceMs: nowMs,`,
      },
    ],
    tests: ['src/supervisor/server-state.test.ts', 'src/supervisor/restart-oracle.test.ts'],
  },
  {
    name: 'guard after lookup',
    edits: [
      {
        file: 'src/host/operations.ts',
        find: `        [everyKind, allow(guards, audit.denied)],
        forCalls(checkPins(facts)),`,
        replace: `        forCalls(checkPins(facts)),
        [everyKind, allow(guards, audit.denied)],`,
      },
    ],
    tests: ['test/host/host.test.ts'],
  },
  {
    name: 'calls held back for ever after a failed session renewal',
    edits: [
      {
        file: 'src/transports/http/streamable-http-channel.ts',
        find: `        for (const call of this.calls.waiting) call.fail(error);
        release();`,
        replace: `        for (const call of this.calls.waiting) call.fail(error);`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'initialize waits for a connection among the calls',
    edits: [
      {
        file: 'src/transports/http/http-channel.ts',
        find: `    return call.isControl ? this.#controlCalls : this.calls;`,
        replace: `    return call.isControl && call.frame.method !== 'initialize' ? this.#controlCalls : this.calls;`,
      },
      {
        file: 'src/transports/http/call-queue.ts',
        find: `    if (this.#holds === 0 && this.#slots.take()) return`,
        replace: `    if ((this.#holds === 0 || (call as any).frame.method === 'initialize') && this.#slots.take()) return`,
      },
      {
        file: 'src/session/connector.ts',
        find: `    const connections = Math.max(connectionsDefault, concurrency);`,
        replace: `    const connections = Math.min(connectionsDefault, concurrency + connectionsDefault);`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'a 400 in a forgotten session taken as it is',
    edits: [
      {
        file: 'src/session/eras/legacy/http-session.ts',
        find: `    if (!isRefused || !(error instanceof BadRequest)) return Promise.resolve(false);`,
        replace: `    if (!isRefused || error instanceof BadRequest) return Promise.resolve(false);`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'a modern server that became a legacy one is not negotiated again',
    edits: [
      {
        file: 'src/session/eras/checked-requests.ts',
        find: `const ended = isOver ? over() : undefined;`,
        replace: `const ended = isOver && peer.closedBy ? over() : undefined;`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'a legacy server that became a modern one is not negotiated again',
    edits: [
      {
        file: 'src/session/eras/legacy/session-renewal.ts',
        find: `      if (refusesEra(cause)) void over();`,
        replace: `      if (refusesEra(cause)) void over;`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'the tools of a redeployed server are not read again',
    edits: [
      {
        file: 'src/catalog/server-run.ts',
        find: `    const tools = this.#readerOf('tools/list').readAgain();`,
        replace: '    const tools = () => undefined;',
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'calls that waited are sent to a throttled server',
    edits: [
      {
        file: 'src/host/dispatch.ts',
        find: `    return throttled ?? (tool`,
        replace: `    return (throttled && undefined) ?? (tool`,
      },
    ],
    tests: ['src/host/dispatch.test.ts', 'test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'calls race the tools of a renewed session after a throttle',
    edits: [
      {
        file: 'src/catalog/list-reader.ts',
        find: `      if (isAgain) this.#endHoldOrThrottle();`,
        replace: `      if (isAgain) this.#endHold();`,
      },
    ],
    tests: ['src/catalog/list-reader.test.ts', 'test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'the list of a new session waits for the hung one of the old session',
    edits: [
      {
        file: 'src/catalog/list-reader.ts',
        find: `    this.#running?.abort();\n    void this.read();\n`,
        replace: `    void this.read();\n`,
      },
    ],
    tests: ['src/catalog/list-reader.test.ts', 'test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'a call that waited is sent while its session is lost again',
    edits: [
      {
        file: 'src/session/eras/legacy/http-session.ts',
        find: `    return this.#send(method, params, { ...options, progressToken }, progressToken, mayRepeat);`,
        replace: `    const known = method === 'tools/call' ? this.#toolsAwaited?.() : undefined;
    if (known) await this.#renewal.await({ method, deadlineAtMs, signal }, () => known);
    return this.#request(method, params, { ...options, progressToken }, this.#renewal.count).catch(answerOf);`,
      },
      {
        file: 'src/session/eras/legacy/session-renewal.ts',
        find: `    try {
      renewed();
    } finally {
      channel?.opened();
    }`,
        replace: `    channel?.opened();
    renewed();`,
      },
    ],
    tests: ['src/session/eras/legacy/http-session.test.ts', 'test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'only a caller finds out that a lost server is back',
    edits: [
      {
        file: 'src/policy/breaker.ts',
        find: `    const checkAtMs = strike === 'loss' ? this.#checkAtMs(tries, nowMs) : undefined;`,
        replace: `    const checkAtMs = strike === 'loss' && nowMs < 0 ? this.#checkAtMs(tries, nowMs) : undefined;`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
  {
    name: 'a server at work killed for missed signs of life',
    edits: [
      {
        file: 'src/session/session.ts',
        find: `      inFlight: () => peer.pending.unansweredBesides(era.livenessMethod),`,
        replace: `      inFlight: () => 0,`,
      },
      {
        file: 'src/wire/peer.ts',
        find: `    this.#attribution.sent(pending);`,
        replace: `    this.#attribution.sent(pending);
    this.onGivenUp?.(0);`,
      },
    ],
    tests: ['test/simulation/recovery-simulation.test.ts'],
  },
];
