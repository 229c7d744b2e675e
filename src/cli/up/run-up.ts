/**
 * `hostler up`: reads the configuration, locks the data directory, runs the servers and serves clients until it is stopped.
 * Not here: options (up-options.ts), the first screen (output/first-screen.ts), serving (gateway/).
 * Invariants: stdout gets one line of JSON or the messages of one client, nothing else. Every opened part is closed in reverse
 * order, also when a later step fails. An invalid edit of the configuration changes nothing.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { ServedWorkers, ServeWorkers } from '../../broker/serve-workers.js';
import { isRemark, warningReason } from '../../config/client-config.js';
import { drainMsOf, type ListenSettings, type LogLevel } from '../../config/listen-settings.js';
import { refuseOwnUrls } from '../../config/own-entry.js';
import { type UnlistedRole, unlistedRoles } from '../../config/unlisted-roles.js';
import { createGateway, type Gateway, gatewayCapabilities } from '../../gateway/gateway.js';
import type { Host } from '../../host/host.js';
import type { HostConfig } from '../../host/host-interface.js';
import { setBounded } from '../../kernel/bounded-map.js';
import { systemClock } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { faultsOf, type HostError, isHostError, thrownText } from '../../kernel/errors.js';
import { createRedactor } from '../../kernel/redact.js';
import type { ParsedArgs } from '../command.js';
import { prepareDataDir } from '../config/data-dir.js';
import { registerHost } from '../config/running-hosts.js';
import { contentOf, watchConfig } from '../config/watch-config.js';
import { controlPath, type RunningFacts } from '../control/control-protocol.js';
import { type Operations, openControl } from '../control/control-server.js';
import { createOperations } from '../control/operations.js';
import { EXIT, exitCodeOf } from '../exit-codes.js';
import { brokerLines } from '../output/broker-event-line.js';
import { LevelLog } from '../output/stderr-log.js';
import { waitingText } from '../output/waiting-text.js';
import { hostLogPath } from '../process/host-address.js';
import type { EndReason } from '../relay/relay-state.js';
import { askTrust } from '../trust/ask-trust.js';
import { TrustedSource, type UsableConfig } from '../trust/trusted-source.js';
import { version } from '../version.js';
import { announce } from './announce.js';
import { applyConfig } from './apply-config.js';
import { copyState } from './copy-state.js';
import { createUpHost } from './create-host.js';
import { DisabledItems } from './disabled-items.js';
import { LogFile } from './log-file.js';
import { hasPort, listenAnywhere } from './port.js';
import { RelayService } from './relay-service.js';
import { brokerFacts, settingNotes } from './running-facts.js';
import { ServerLogs } from './server-logs.js';
import { inFile, type Serving, servingOf } from './serving-config.js';
import { Signals } from './signals.js';
import { listenOf, RELAYED_VARIABLE, type UpOptions, upOptions } from './up-options.js';
import { UpScreen } from './up-screen.js';

const notesMax = 100;

/** Loads the broker, which most starts do not need. A parameter, because the bundle cannot import files. */
type LoadServeWorkers = () => Promise<ServeWorkers>;

/** `alone`: why this process serves its client itself, without sockets; undefined if sockets can be used. */
export async function runUp(args: ParsedArgs, loadServeWorkers: LoadServeWorkers, alone?: string): Promise<number> {
  const given = upOptions(args, process.env, process.cwd());
  delete process.env[RELAYED_VARIABLE];
  // Without a socket the data directory cannot be locked, so this process works on a copy of it.
  const dataDir = alone === undefined ? given.dataDir : mkdtempSync(path.join(os.tmpdir(), 'hostler-'));
  const options = { ...given, dataDir };
  const signals = new Signals();
  try {
    if (alone !== undefined) copyState(given.dataDir, dataDir);
    for (;;) {
      const run = new Run(options, loadServeWorkers, signals, alone);
      try {
        await run.begin();
        run.announce();
        await run.stopped;
      } finally {
        await run.end();
      }
      // A host that a relay started is started again by the next request, with the newest program.
      if (run.endReason !== 'restart' || options.isRelayed) return EXIT.done;
    }
  } finally {
    if (alone !== undefined) rmSync(dataDir, { recursive: true, force: true });
  }
}

class Run {
  readonly #options: UpOptions;
  readonly #loadServeWorkers: LoadServeWorkers;
  readonly #redactor = createRedactor();
  readonly #startedAt = systemClock.date().toISOString();
  readonly #closers: (() => unknown)[] = [];
  #operations: Operations = {};
  readonly #write: (text: string) => void;
  readonly #screen = new UpScreen(systemClock);
  readonly #log: LevelLog;
  readonly #source: TrustedSource;
  #host: Host | undefined;
  #gateway: Gateway | undefined;
  #workers: ServedWorkers | undefined;
  #settings: Serving | undefined;
  /** Adds the place in the file to an error of the configuration. */
  #locate: UsableConfig['locate'] = (error) => error;
  readonly #noted = new Map<string, true>();
  #listen: ListenSettings | undefined;
  readonly #stopped = deferred();
  #relays: RelayService | undefined;
  readonly #alone: string | undefined;
  #isServing = false;
  #isEditRefused = false;
  #isEnding = false;
  /** The reason that connected relays receive. */
  endReason: EndReason = 'down';

  constructor(options: UpOptions, loadServeWorkers: LoadServeWorkers, signals: Signals, alone: string | undefined) {
    this.#options = options;
    this.#loadServeWorkers = loadServeWorkers;
    this.#alone = alone;
    this.#write = options.isRelayed ? new LogFile(hostLogPath(options.dataDir)).write : this.#screen.write;
    this.#log = new LevelLog({ redact: (text) => this.#redactor.mask(text), write: this.#write });
    const { config: file, isFoundInFolder } = options;
    signals.onSignal = (signal) => this.#signalled(signal);
    this.#source = new TrustedSource({ file, isFoundInFolder }, process.env);
  }

  get stopped(): Promise<void> {
    return this.#stopped.promise;
  }

  async begin(): Promise<void> {
    const { dataDir, auth } = this.#options;
    const since = contentOf(this.#options.config);
    const first = await this.#source.open(askTrust(process.env)).catch((error: unknown) => {
      throw isHostError(error) ? inFile(error, this.#options.config) : error;
    });
    const { config, settings, accept } = this.#readConfig(first);
    accept();
    const listen = listenOf(settings.listen, this.#options);
    this.#listen = listen;
    this.#settings = settings;
    this.#log.level = settings.log.level;
    prepareDataDir(dataDir);
    if (this.#alone === undefined) {
      // The control socket opens first: it is the lock of the data directory.
      const control = await openControl(controlPath(dataDir), () => this.#running(), systemClock, this.#options.config);
      this.#closers.push(() => control.close());
      this.#closers.push(registerHost(dataDir, process.env));
    }
    const { host, identity } = createUpHost({
      ...{ file: this.#options.config, dataDir, settings, capabilities: gatewayCapabilities },
      ...{ redactor: this.#redactor, onProblem: this.#problem },
    });
    this.#closers.push(() => identity.close());
    this.#host = host;
    this.#closers.push(() => host.close());
    const logs = new ServerLogs(host, systemClock, this.#redactor.mask);
    this.#closers.push(() => logs.close());
    logs.on(({ server, text }, level) => this.#logText(level, `${server}: ${text}`));
    const gateway = await createGateway({
      host,
      settings: { listen, keys: settings.keys, auth, version },
      dataDir,
      clock: systemClock,
      onProblem: this.#problem,
      opensLater: true,
      brokerFigures: () => this.#workers?.status(),
    });
    this.#gateway = gateway;
    if (gateway.key !== undefined) this.#redactor.know(gateway.key);
    this.#closers.push(() => gateway.close(this.#drainMs()));
    const disabled = new DisabledItems(dataDir, host);
    const facts = () => this.#facts();
    this.#operations = createOperations({ host, logs, clock: systemClock, facts, disabled, end: this.#endFor });
    const { isStdio, isRelayed, port } = this.#options;
    // For clients over stdio, a port is opened only with --port: clients with different configurations each run a Hostler.
    // The port opens before any server starts, so a port in use has no side effects.
    const isChosen = port !== undefined || hasPort(config);
    if (!(isStdio || isRelayed) || port !== undefined)
      await (isChosen ? gateway.listen() : listenAnywhere(gateway, dataDir, listen.port, this.#problem));
    await host.open(refuseOwnUrls(config, gateway.url, listen.host));
    gateway.opened();
    await this.#serveWorkers(host, settings);
    this.#isServing = true;
    // Two turns of the event loop accept and read waiting clients, so they are answered before the rest is set up.
    for (let turns = 0; gateway.url !== undefined && turns < 2; turns++) await nextTurn();
    if (this.#alone === undefined) await this.#serveRelays(host, gateway);
    if (isStdio) void this.#serveClient(gateway);
    const watched = { clock: systemClock, onChange: () => void this.#reload(), onProblem: this.#problem };
    this.#closers.push(watchConfig({ ...watched, file: this.#options.config, since }));
    const { confirmations } = this.#source;
    if (confirmations !== undefined)
      this.#closers.push(watchConfig({ ...watched, file: confirmations, relevant: String }));
  }

  async #serveWorkers(host: Host, { broker, keys }: Serving): Promise<void> {
    if (!broker) return;
    const serveWorkers = await this.#loadServeWorkers();
    const lineOf = brokerLines(systemClock);
    const workers = await serveWorkers({
      host,
      settings: broker,
      // The gateway has already reported the problems of keys.
      keys,
      dataDir: this.#options.dataDir,
      folder: path.dirname(path.resolve(this.#options.config)),
      isRolelessAllowed: () => this.#settings?.unlistedRole === 'allow',
      clock: systemClock,
      onEvent: (event) => {
        // The parser has already reported the roles of configured keys.
        if (event.kind === 'unlisted_role' && this.#unlistedRoles().some(({ role }) => role === event.role)) return;
        const line = lineOf(event);
        if (line) this.#logText(...line);
      },
    });
    this.#workers = workers;
    // The broker and the gateway share the drain time.
    this.#closers.push(() => {
      const drainMs = this.#drainMs();
      return Promise.all([workers.close(drainMs), this.#gateway?.close(drainMs)]);
    });
    if (workers.url !== undefined) this.#logText('info', `broker: workers connect at ${workers.url}`);
  }

  async #serveRelays(host: Host, gateway: Gateway): Promise<void> {
    const relays = new RelayService({
      ...{ options: this.#options, host, gateway, workers: () => this.#workers, clock: systemClock },
      idleMs: () => this.#settings?.idleExitMs ?? 0,
      isEnding: () => this.#isEnding,
      end: this.#endFor,
      reload: () => void this.#reload(),
      log: (level, text) => this.#logText(level, text),
      onProblem: this.#problem,
    });
    await relays.open();
    this.#relays = relays;
    this.#closers.splice(-1, 0, () => relays.close());
    // Relays stop first: requests that they sent are still answered, and they hold later requests of their clients for the next host.
    this.#closers.push(() => relays.stop(this.endReason));
  }

  /** Serves the client of a process without a relay. The process ends with its client. */
  async #serveClient(gateway: Gateway): Promise<void> {
    await gateway.serveStdio(process.stdin, process.stdout).catch(this.#problem);
    this.#endFor('down');
  }

  announce(): void {
    const parts = { host: this.#host as Host, gateway: this.#gateway as Gateway, broker: this.#workers?.url };
    announce(this.#options, { ...parts, write: this.#write, screen: this.#screen });
    this.#closers.push(() => this.#screen.end());
    // With sockets, a process serves its client itself only as PID 1 (up.ts).
    const why = this.#alone ?? (this.#options.isStdio ? 'PID 1' : undefined);
    if (why !== undefined) this.#logText('warn', `${why}: this process serves its client itself`);
  }

  #signalled(signal: NodeJS.Signals): void {
    if (this.#isEnding) process.exit(EXIT.failed);
    const drainS = this.#drainMs() / 1_000;
    const wait = drainS === 0 ? '' : `; running requests have up to ${drainS} s`;
    this.#logText('info', `${signal}: stopping${wait}; send it again to stop at once`);
    this.#endFor('down');
  }

  readonly #endFor = (reason: EndReason): void => {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.endReason = reason;
    if (this.#options.isRelayed) this.#logText('info', `stopping: ${reason}`);
    this.#stopped.resolve();
    // A start may wait half a minute for nats-server. Hostler does not serve yet, so no request has to be drained.
    if (!this.#isServing) void this.end().then(() => process.exit(EXIT.failed));
  };

  #drainMs(): number {
    return this.#settings ? drainMsOf(this.#settings.listen) : 0;
  }

  async end(): Promise<void> {
    this.#isEnding = true;
    for (let end = this.#closers.pop(); end; end = this.#closers.pop()) {
      try {
        await end();
      } catch (error) {
        this.#problem(error);
      }
    }
  }

  /** `first`: the configuration that was read at the start. */
  #readConfig(first?: UsableConfig) {
    const { config: file } = this.#options;
    try {
      const { config, secrets, problems, locate, accept, isChanged } = first ?? this.#source.read();
      for (const secret of secrets) this.#redactor.know(secret);
      // The host parses the servers and reports problems of single entries.
      const settings = servingOf(config, locate);
      this.#locate = locate;
      if (isChanged) for (const problem of problems) this.#problem(problem);
      return { config: config as HostConfig, settings, accept, isChanged };
    } catch (error) {
      throw isHostError(error) ? inFile(error, file) : error;
    }
  }

  async #reload(): Promise<void> {
    const [host, gateway] = [this.#host, this.#gateway];
    if (!host || !gateway) return;
    try {
      const { config, settings, accept, isChanged } = this.#readConfig();
      // An unchanged configuration is logged only after a refused edit: then the log says that the file is valid again.
      if (!isChanged && !this.#isEditRefused) return;
      this.#isEditRefused = false;
      const listen = listenOf(settings.listen, this.#options);
      const before = this.#settings;
      const swap = () => {
        this.#settings = settings;
        this.#log.level = settings.log.level;
        accept();
      };
      const usable = refuseOwnUrls(config, gateway.url, this.#listen?.host ?? listen.host);
      const edit = { config: usable, keys: settings.keys, listen, swap };
      const { atBroker } = await applyConfig({ host, gateway, workers: this.#workers }, edit);
      this.#logText('info', 'the edited configuration is in effect');
      if (JSON.stringify(before?.broker) !== JSON.stringify(settings.broker))
        this.#logText('warn', 'broker: changes other than keys and roles take effect after a restart');
      const { waiting } = this.#source;
      if (waiting.length > 0) this.#logText('warn', waitingText(waiting));
      const { host: address, port, tls } = this.#listen ?? listen;
      const isSame = listen.host === address && listen.port === port && isDeepStrictEqual(listen.tls, tls);
      if (gateway.url !== undefined && !isSame)
        this.#logText(
          'warn',
          `listen: still ${address}, port ${port}; another host, port or tls takes effect after a restart`,
        );
      await atBroker.catch(this.#problem);
    } catch (error) {
      this.#isEditRefused = true;
      this.#logText('error', 'the edited configuration is invalid; the previous one stays in effect');
      for (const fault of isHostError(error) ? faultsOf(error) : [error]) this.#problem(fault);
    }
  }

  /** Until the start is complete, `version` is the only operation. */
  #running(): Operations {
    const version = () => Promise.resolve(this.#relays?.restoreSocket()).then(() => this.#facts());
    return { ...this.#operations, version };
  }

  #facts(): RunningFacts {
    const { config, dataDir, isRelayed } = this.#options;
    const { url } = this.#gateway ?? {};
    const { waiting } = this.#source;
    const notes = [...settingNotes(this.#unlistedRoles(), this.#workers), ...(this.#relays?.notes() ?? [])];
    return {
      ...{ version, pid: process.pid, url, dataDir, config, startedAt: this.#startedAt, notes },
      ...this.#relays?.facts(),
      ...(isRelayed ? { idleExitMs: this.#settings?.idleExitMs } : {}),
      ...(this.#workers ? { broker: brokerFacts(this.#workers) } : {}),
      ...(this.#isEnding ? { isStopping: true } : {}),
      ...(waiting.length === 0 ? {} : { waiting }),
    };
  }

  #unlistedRoles(): readonly UnlistedRole[] {
    const { keys = {}, roles, unlistedRole } = this.#settings ?? {};
    return unlistedRoles(keys, roles, unlistedRole);
  }

  readonly #problem = (given: unknown): void => {
    // The text of any other error may quote a peer.
    if (!isHostError(given)) return this.#logText('error', this.#redactor.redact(thrownText(given)));
    const error = this.#locate(given);
    if (isRemark(error)) return this.#noteOnce(error);
    // The first list no longer waits for a server that still starts: an event will report how the start ends.
    if (error.code === 'reconnecting' && error.details.reason === undefined && !isHostError(error.cause)) return;
    // An event has already logged an unavailable server; only the hint of its cause is new.
    const isLogged = exitCodeOf(error) === EXIT.unavailable && isHostError(error.cause);
    const { server, field } = error.details;
    if (!isLogged) this.#logText('warn', error.message);
    const hint = isLogged ? (error.cause as HostError).hint : error.hint;
    if (hint !== undefined) this.#logText('warn', `${(!isLogged && field) || server || 'hostler'}: ${hint}`);
  };

  /** A remark about the configuration is logged once, not at each edit. */
  #noteOnce({ message, hint, details: { reason } }: HostError): void {
    if (this.#noted.has(message)) return;
    setBounded(this.#noted, message, true, notesMax);
    this.#logText(reason === warningReason ? 'warn' : 'info', `${message}; ${hint}`);
  }

  #logText(level: LogLevel, text: string): void {
    this.#log.write(level, text);
  }
}
