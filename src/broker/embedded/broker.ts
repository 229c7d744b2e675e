/**
 * The embedded broker: its core and, where workers come from other processes, its port.
 * Not here: the disk (store/), which whoever opens it also closes, after the broker.
 */
import type { DeadLetters } from '../dead-letters.js';
import { BrokerCore, type BrokerCoreOptions } from './broker-core.js';
import type { Credential } from './credentials.js';
import type { BrokerStatus } from './events.js';
import { type ListenOptions, listenForSockets, type WsServer } from './ws-server.js';

export interface BrokerOptions extends BrokerCoreOptions {
  /** Undefined: only whoever is in this process. */
  readonly listen?: ListenOptions;
}

export interface Broker {
  /** For hosts inside this process (host-link.ts). */
  readonly core: BrokerCore;
  /** Where workers find it; undefined when it does not listen. */
  readonly url: string | undefined;
  rekey(credentials: readonly Credential[]): void;
  status(): BrokerStatus;
  /** As they are: whether one may run again is for others to ask (careful-letters.ts). */
  readonly deadLetters: DeadLetters;
  close(): Promise<void>;
}

/** Throws a HostError when it cannot listen as it should. */
export async function openBroker({ listen, ...options }: BrokerOptions): Promise<Broker> {
  const core = new BrokerCore(options);
  await core.open();
  const server: WsServer | undefined =
    listen &&
    (await listenForSockets({
      ...listen,
      clock: options.clock,
      limits: core.limits,
      hasRoom: () => core.hasRoom,
      turnAway: (reason) => core.turnAway(reason),
      attach: (wire) => core.attach(wire),
    }));
  return {
    core,
    url: server?.url,
    rekey: (credentials) => core.rekey(credentials),
    status: () => core.status(),
    deadLetters: {
      list: () => core.deadLetters(),
      revive: (seq) => core.revive(seq),
      drop: (seq) => core.dropDead(seq),
    },
    async close() {
      try {
        await core.close();
      } finally {
        await server?.close();
      }
    },
  };
}
