/**
 * A host on NATS: one connection for its link and its journal, the streams of the mailboxes it serves, and the table that
 * gives each its role. Any number of hosts may share a server: each request goes to one of them.
 * Not here: what is done with a request (service/), which users the server lets in (nats-server-config.ts).
 *
 * Invariant: link and journal use the same connection while there is one; a lost one is opened anew by whoever needs it.
 */
import { randomBytes } from 'node:crypto';
import { Cancellation } from '../../kernel/cancel-signal.js';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { ReviveOptions } from '../dead-letters.js';
import { type CallJournal, mailboxPattern, type OpenHostLink } from '../ports.js';
import { deskDefaults } from '../service/broker-service.js';
import { connectNats } from './nats-connect.js';
import { bufferOf, type NatsConnection } from './nats-connection.js';
import { type NatsDeadLetter, NatsDeadLetters } from './nats-dead-letters.js';
import { forgetGone } from './nats-gone-requests.js';
import { type NatsCredential, NatsHostLink } from './nats-host-link.js';
import { NatsJournal } from './nats-journal.js';
import { NatsManifests } from './nats-manifests.js';
import { namesOf } from './nats-names.js';
import { ensureMailbox, ensureShared, readDepth, type StreamPlan, streamDefaults } from './nats-streams.js';
import { NatsSweeper, type Sweep } from './nats-sweeper.js';
import { type Served, type Windows, windowsOf } from './nats-windows.js';

export interface NatsHostOptions extends Partial<StreamPlan>, Partial<Windows> {
  readonly url: string;
  readonly key?: string | undefined;
  /** Without TLS also to another machine. */
  readonly insecure?: boolean | undefined;
  /** The name of this host, for operators and in claims. */
  readonly instance: string;
  /** By mailbox. */
  readonly credentials: ReadonlyMap<string, NatsCredential>;
  readonly clock?: Clock;
  readonly prefix?: string;
  /** What the service runs at a time; what is taken out of the streams goes by it, unless a window is given. */
  readonly served?: Served;
  /** Something that came could not be taken or kept; everything else goes on. */
  readonly onProblem?: (error: HostError) => void;
}

export interface NatsHost {
  readonly open: OpenHostLink;
  readonly journal: CallJournal;
  /** Resolves when the new ones are served; those that are not in it any more are not from this moment on. */
  replaceCredentials(credentials: ReadonlyMap<string, NatsCredential>): Promise<void>;
  /** Requests that wait or are owed, of each mailbox. */
  depths(): Promise<readonly { readonly mailbox: string; readonly count: number; readonly bytes: number }[]>;
  deadLetters(): Promise<readonly NatsDeadLetter[]>;
  /** Puts one back into its queue, as if new. False: it is not there. Rejects when it may have run, unless that is said. */
  reviveDead(seq: number, options?: ReviveOptions): Promise<boolean>;
  dropDead(seq: number): Promise<boolean>;
  /** Ends the connection, and with it link and journal. */
  close(): Promise<void>;
}

/** As a service has them that was told nothing else. */
const servedDefaults: Served = { calls: deskDefaults.running, callsPerWorker: deskDefaults.runningOfOne };
const mailboxesMax = 1_024;
/** Mailboxes whose streams are made or compared at a time. */
const ensuredAtOnce = 8;

export function natsHost(options: NatsHostOptions): NatsHost {
  const { clock = systemClock, instance, url, key, insecure, onProblem = () => {} } = options;
  if (!mailboxPattern.test(instance))
    throw new HostError('invalid_spec', `instance: must match ${mailboxPattern.source}`, { field: 'instance' });
  const names = namesOf(options.prefix);
  const plan: StreamPlan = { ...streamDefaults, ...defined(options) };
  const windows = windowsOf(options.served ?? servedDefaults, options);
  const boot = randomBytes(16).toString('hex');
  const never = new Cancellation();
  let credentials = checkCredentials(options.credentials);
  let connecting: Promise<NatsConnection> | undefined;
  let link: NatsHostLink | undefined;
  let isClosed = false;
  // Never a reason to connect: what is not removed now goes by its age.
  const sweeper = new NatsSweeper(clock, async ({ stream, seq }) => (await connecting)?.remove(stream, seq));
  const sweep = (what: Sweep, until: Date) => sweeper.add(what, until);

  const connect = async (signal = never): Promise<NatsConnection> => {
    const name = `hostler host ${instance}`;
    const opened = await connectNats({ url, key, insecure, clock, name, onProblem }, signal);
    try {
      await ensureShared(opened, names, plan);
      await ensureAll(opened, [...credentials.keys()]);
    } catch (error) {
      await opened.close();
      throw error;
    }
    opened.subscribe(names.host(boot), ({ reply, data }) => {
      if (reply) opened.tell(reply, journal.stateOf(bufferOf(data).toString('latin1')));
    });
    return opened;
  };

  const connection = async (): Promise<NatsConnection> => {
    const was = connecting;
    const before = await was?.catch(() => undefined);
    if (isClosed) throw new HostError('transport', `host '${instance}' is closed`, { execution: 'not_executed' });
    // One that is being closed serves nobody any more, though its end is not heard yet. Who waited here as well may have the next.
    if (before?.isClosing && connecting === was) connecting = undefined;
    if (connecting === undefined) {
      const opening = connect();
      connecting = opening;
      const over = () => {
        if (connecting === opening) connecting = undefined;
      };
      opening.then((opened) => opened.closed).then(over, over);
    }
    return connecting;
  };

  const ensureAll = async (opened: NatsConnection, mailboxes: readonly string[]): Promise<void> => {
    for (let at = 0; at < mailboxes.length; at += ensuredAtOnce)
      await Promise.all(
        mailboxes.slice(at, at + ensuredAtOnce).map(async (mailbox) => {
          await ensureMailbox(opened, names.of(mailbox), plan);
          // A help for what waits there: whoever is served goes without it where it fails.
          await forgetGone(opened, names.of(mailbox)).catch(onProblem);
        }),
      );
  };

  const manifests = new NatsManifests({
    ...{ names, clock, connection, credentials: () => credentials, isClosed: () => isClosed },
  });
  const journal = new NatsJournal({ names, connection, instance, boot, clock, sweep, isClosed: () => isClosed });
  const deadLetters = new NatsDeadLetters({ names, journal, connection, clock, onProblem });

  return {
    journal,
    async open(handlers, signal) {
      await link?.close();
      const opened = await connection();
      if (signal.aborted)
        throw new HostError('cancelled', 'the link is not wanted any more', { execution: 'not_executed' });
      const made = new NatsHostLink({
        ...{
          connection: opened,
          names,
          journal,
          deadLetters,
          clock,
          handlers,
          windows,
          sweep,
          manifests,
        },
        ackWaitMs: plan.ackWaitMs,
        credentialOf: (mailbox) => credentials.get(mailbox),
      });
      link = made;
      void made.closed.then(() => {
        if (link === made) link = undefined;
      });
      for (const mailbox of credentials.keys()) made.serve(mailbox);
      await opened.flush();
      return made;
    },
    async replaceCredentials(replaced) {
      const before = credentials;
      credentials = checkCredentials(replaced);
      for (const mailbox of before.keys()) if (!credentials.has(mailbox)) link?.leave(mailbox);
      manifests.forgetUnused();
      if (connecting === undefined) return;
      const opened = await connecting;
      await ensureAll(
        opened,
        [...credentials.keys()].filter((mailbox) => !before.has(mailbox)),
      );
      for (const [mailbox, { role }] of credentials) {
        link?.serve(mailbox);
        if (before.get(mailbox)?.role === role && before.has(mailbox)) continue;
        await manifests.roleChanged(opened, mailbox);
      }
    },
    async depths() {
      const opened = await connection();
      return Promise.all([...credentials.keys()].map((mailbox) => readDepth(opened, names.of(mailbox))));
    },
    deadLetters: () => deadLetters.list(),
    reviveDead: (seq, options) => deadLetters.revive(seq, options),
    dropDead: (seq) => deadLetters.drop(seq),
    async close() {
      isClosed = true;
      sweeper.stop();
      await link?.close();
      const opened = await connecting?.catch(() => undefined);
      await opened?.close();
    },
  };
}

/** Throws when there are too many. */
export function checkCredentials(
  credentials: ReadonlyMap<string, NatsCredential>,
): ReadonlyMap<string, NatsCredential> {
  if (credentials.size > mailboxesMax)
    throw new HostError('invalid_spec', `credentials: more than ${mailboxesMax} mailboxes`, {
      limit: mailboxesMax,
      actual: credentials.size,
      hint: 'take out keys that nobody uses, or share the workers among several configurations',
    });
  return new Map(credentials);
}

/** Those of the plan that somebody set. */
function defined(options: Partial<StreamPlan>): Partial<StreamPlan> {
  const keys = Object.keys(streamDefaults) as (keyof StreamPlan)[];
  return Object.fromEntries(keys.filter((key) => options[key] !== undefined).map((key) => [key, options[key]]));
}
