/**
 * `hostler up`: reads the configuration, takes the data directory, runs the servers, serves clients, until it is told to stop.
 * Not here: options (up-options.ts), what a person sees first (first-screen.ts), serving (gateway/).
 *
 * Invariants: stdout holds what was asked for and nothing else: one line of JSON, or the messages of one client; whatever was
 * begun is ended in the reverse order, also when a later step fails; a broken edit of the configuration changes nothing.
 */
import './plain-zod.js';

import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ServedWorkers, ServeWorkers } from '../broker/serve-workers.js';
import type { BrokerSettings } from '../config/broker-settings.js';
import { parseServing } from '../config/host-config.js';
import { parseKeys } from '../config/keys.js';
import { drainMsOf, type ListenSettings, type LogLevel } from '../config/listen-settings.js';
import { type UnlistedRole, unlistedRoleHint, unlistedRoles, unlistedRoleText } from '../config/unlisted-roles.js';
import { createGateway, type Gateway, gatewayCapabilities } from '../gateway/gateway.js';
import type { BrokerFigures } from '../gateway/metrics/broker-figures.js';
import { Host } from '../host/host.js';
import type { HostConfig } from '../host/host-interface.js';
import { systemClock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import { createRedactor } from '../kernel/redact.js';
import { applyConfig } from './apply-config.js';
import { brokerLines } from './broker-words.js';
import type { Words } from './command.js';
import { controlPath } from './control/control-path.js';
import { type Operations, openControl } from './control/control-server.js';
import { letterOperations } from './control/letter-operations.js';
import { createOperations } from './control/operations.js';
import { prepareDataDir } from './data-dir.js';
import { EXIT, exitCodeOf } from './exit-codes.js';
import { firstLine, firstScreen } from './first-screen.js';
import { findSame, joinRunning } from './join-running.js';
import { printJson, widthOf } from './print.js';
import { ServerLogs } from './server-logs.js';
import { LevelLog } from './stderr-log.js';
import { openStdioSocket, stdioPath } from './stdio-socket.js';
import { onStopSignals } from './stop-signals.js';
import { askTrust } from './trust/ask-trust.js';
import { TrustedSource, type UsableConfig } from './trust/trusted-source.js';
import { waitingText } from './trust/waiting-text.js';
import { listenOf, type UpOptions, upOptions } from './up-options.js';
import { version } from './version.js';
import { contentOf, watchConfig } from './watch-config.js';

/** What not every start needs. Asked for from outside the bundle, which cannot import. */
export interface LaterParts {
  readonly serveWorkers: () => Promise<ServeWorkers>;
}

export async function up(words: Words, later: LaterParts): Promise<number> {
  const options = upOptions(words, process.env, process.cwd());
  const run = new Run(options, later);
  const stopped = run.untilStopped();
  try {
    if (await run.joined()) return EXIT.done;
    await run.begin();
    run.announce();
    await stopped;
    return EXIT.done;
  } catch (error) {
    // Several that are started at once: one has the data directory now.
    if (isInUse(error) && (await run.joined())) return EXIT.done;
    throw error;
  } finally {
    await run.end();
  }
}

const isInUse = (error: unknown): boolean => isHostError(error) && error.details.reason === 'in_use';

class Run {
  readonly #options: UpOptions;
  readonly #later: LaterParts;
  readonly #redactor = createRedactor();
  readonly #startedAt = systemClock.date().toISOString();
  /** What ends each thing that was begun, the newest last. */
  readonly #ends: (() => unknown)[] = [];
  #operations: Operations = {};
  readonly #log = new LevelLog((text) => this.#redactor.redact(text));
  readonly #source: TrustedSource;
  #host: Host | undefined;
  #gateway: Gateway | undefined;
  #workers: ServedWorkers | undefined;
  #settings: ReturnType<typeof parseServing> | undefined;
  #listen: ListenSettings | undefined;
  #stop: () => void = () => {};
  readonly #stopped = new AbortController();
  /** Clients that are served over one. */
  #pipes = 0;
  #isServing = false;
  #isEnding = false;

  constructor(options: UpOptions, later: LaterParts) {
    this.#options = options;
    this.#later = later;
    const { config: file, isFoundInFolder } = options;
    this.#source = new TrustedSource({ file, isFoundInFolder }, process.env);
  }

  /** Over stdio, and somebody serves the same already: then that one serves this client too, and this is all there is to do. */
  async joined(): Promise<boolean> {
    const { isStdio, isJson, port, dataDir } = this.#options;
    const running = isStdio && port === undefined ? await findSame(this.#options, systemClock) : undefined;
    if (!running) return false;
    const { pid, url } = running;
    if (isJson) process.stderr.write(`${JSON.stringify({ ready: true, url: url ?? null, key: null, pid, dataDir })}\n`);
    this.#say('info', `joins the Hostler that runs already (pid ${pid})`);
    return joinRunning(this.#options, systemClock, this.#stopped.signal);
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
    // First of all: whoever has the socket has the directory.
    const control = await openControl(controlPath(dataDir), () => this.#running());
    this.#ends.push(() => control.close());
    const host = new Host({
      client: { name: 'hostler', version, capabilities: gatewayCapabilities },
      stateDir: dataDir,
      hiddenPaths: hiddenPaths(this.#options.config, settings.broker),
      ambient: process.env,
      redactor: this.#redactor,
      onProblem: this.#problem,
    });
    this.#host = host;
    this.#ends.push(() => host.close());
    const logs = new ServerLogs(host, systemClock, this.#redactor.redact);
    this.#ends.push(() => logs.close());
    logs.on(({ server, text }, level) => this.#say(level, `${server}: ${text}`));
    const gateway = await createGateway({
      host,
      settings: { listen, keys: settings.keys, auth, version },
      dataDir,
      clock: systemClock,
      onProblem: this.#problem,
      opensLater: true,
      brokerFigures: () => this.#workers && figuresOf(this.#workers.status()),
    });
    this.#gateway = gateway;
    if (gateway.key !== undefined) this.#redactor.know(gateway.key);
    this.#ends.push(() => gateway.close(this.#drainMs()));
    this.#operations = {
      ...createOperations({ host, logs, clock: systemClock, facts: () => this.#facts() }),
      ...letterOperations(() => this.#workers?.deadLetters),
    };
    const { isStdio, port } = this.#options;
    // Over a pipe, a port is only taken when one was asked for: clients with other configurations each have a Hostler of their own.
    // Before anything is started: who finds the port taken has disturbed nobody.
    if (!isStdio || port !== undefined) await gateway.listen();
    await host.open(config);
    gateway.opened();
    await this.#serveWorkers(host, settings);
    this.#isServing = true;
    // Who is waiting already is answered before the rest is set up: one turn to be let in, one to be heard.
    for (let turns = 0; gateway.url !== undefined && turns < 2; turns++) await nextTurn();
    const pipes = await openStdioSocket(stdioPath(dataDir), (socket) => this.#pipe(gateway, socket, socket));
    this.#ends.splice(-1, 0, () => pipes.close());
    // First: whoever comes while the others are finished is better off waiting for its place than taken on and cut off.
    this.#ends.push(() => pipes.stop());
    if (isStdio) void this.#pipe(gateway, process.stdin, process.stdout);
    this.#ends.push(
      watchConfig({
        file: this.#options.config,
        since,
        clock: systemClock,
        onChange: () => void this.#reload(),
        onProblem: this.#problem,
      }),
    );
    const { confirmations } = this.#source;
    if (confirmations === undefined) return;
    const onChange = () => void this.#reload();
    this.#ends.push(watchConfig({ file: confirmations, clock: systemClock, onChange, onProblem: this.#problem }));
  }

  /** Loaded by those who have a broker: nobody else waits for it. */
  async #serveWorkers(host: Host, { broker, keys }: ReturnType<typeof parseServing>): Promise<void> {
    if (!broker) return;
    const serveWorkers = await this.#later.serveWorkers();
    const lineOf = brokerLines(systemClock);
    const workers = await serveWorkers({
      host,
      settings: broker,
      // What is wrong with one was told by the gateway.
      keys: parseKeys(keys, () => {}),
      dataDir: this.#options.dataDir,
      folder: path.dirname(path.resolve(this.#options.config)),
      isRolelessAllowed: () => this.#settings?.unlistedRole === 'allow',
      clock: systemClock,
      onEvent: (event) => {
        // Roles of configured keys were reported when the configuration was read.
        if (event.kind === 'unlisted_role' && this.#unlistedRoles().some(({ role }) => role === event.from.role))
          return;
        const line = lineOf(event);
        if (line) this.#say(...line);
      },
    });
    this.#workers = workers;
    // Both at once: together they have the time that was announced.
    this.#ends.push(() => {
      const drainMs = this.#drainMs();
      return Promise.all([workers.close(drainMs), this.#gateway?.close(drainMs)]);
    });
    if (workers.url !== undefined) this.#say('info', `broker: workers connect at ${workers.url}`);
  }

  /** Started by a client over stdio, it serves until the last one that joined is gone. */
  async #pipe(gateway: Gateway, input: Readable, output: Writable): Promise<void> {
    this.#pipes++;
    await gateway.serveStdio(input, output).catch(this.#problem);
    if (--this.#pipes === 0 && this.#options.isStdio) this.#stop();
  }

  announce(): void {
    const { isJson, isStdio, showsKey, config, dataDir } = this.#options;
    const { url, key, isNewKey, keyFile } = this.#gateway ?? {};
    const broker = this.#workers?.url;
    // Output of later starts, and stderr of a server that a client starts, end in logs that outlive the run.
    const isKeyShown = showsKey || (isNewKey === true && !isStdio);
    const ready = {
      ...{ ready: true, url: url ?? null, key: isKeyShown ? (key ?? null) : null, pid: process.pid, dataDir },
      ...(broker === undefined ? {} : { broker }),
    };
    if (isJson && isStdio) process.stderr.write(`${JSON.stringify(ready)}\n`);
    else if (isJson) printJson(ready);
    const shown =
      key === undefined || keyFile === undefined ? undefined : { text: key, isNew: isNewKey === true, file: keyFile };
    const screen = { version, url, config, dataDir, key: shown };
    if (process.stderr.isTTY) {
      const rows = this.#host?.status() ?? [];
      process.stderr.write(`\n${firstScreen({ ...screen, rows, width: widthOf(process.stderr) })}\n\n`);
    } else process.stderr.write(`${firstLine({ ...screen, servers: this.#host?.names().length ?? 0 })}\n`);
  }

  /** Resolves with the first signal; the second ends the process, and the death watch what is left of its servers. */
  untilStopped(): Promise<void> {
    return new Promise((resolve) => {
      this.#stop = resolve;
      this.#stopped.signal.addEventListener('abort', () => resolve());
      onStopSignals((signal, isAgain) => {
        if (isAgain || this.#isEnding) process.exit(EXIT.failed);
        this.#isEnding = true;
        const drainS = this.#drainMs() / 1_000;
        const wait = drainS === 0 ? '' : `; requests under way may take up to ${drainS} s`;
        this.#say('info', `${signal}: stopping${wait}; send it again to stop at once`);
        this.#stopped.abort();
        // Before it serves there is nothing to wait for.
        if (!this.#isServing && !this.#options.isStdio) void this.end().then(() => process.exit(EXIT.failed));
      });
    });
  }

  /** As the configuration says now. */
  #drainMs(): number {
    return this.#settings ? drainMsOf(this.#settings.listen) : 0;
  }

  async end(): Promise<void> {
    this.#isEnding = true;
    for (let end = this.#ends.pop(); end; end = this.#ends.pop()) {
      try {
        await end();
      } catch (error) {
        this.#problem(error);
      }
    }
  }

  /** `first`: as it was read for the start. */
  #readConfig(first?: UsableConfig) {
    const { config: file } = this.#options;
    try {
      const { config, secrets, problems, accept } = first ?? this.#source.read();
      for (const secret of secrets) this.#redactor.know(secret);
      // The servers, and what is wrong with single entries, are for the host to read.
      const settings = parseServing(config);
      for (const problem of problems) this.#problem(problem);
      return { config: config as HostConfig, settings, accept };
    } catch (error) {
      throw isHostError(error) ? inFile(error, file) : error;
    }
  }

  async #reload(): Promise<void> {
    const [host, gateway] = [this.#host, this.#gateway];
    if (!host || !gateway) return;
    try {
      const { config, settings, accept } = this.#readConfig();
      const listen = listenOf(settings.listen, this.#options);
      const before = this.#settings;
      const swap = () => {
        this.#settings = settings;
        this.#log.level = settings.log.level;
        accept();
      };
      const edit = { config, keys: settings.keys, listen, swap };
      const { atBroker } = await applyConfig({ host, gateway, workers: this.#workers }, edit);
      this.#say('info', 'the edited configuration is in effect');
      if (JSON.stringify(before?.broker) !== JSON.stringify(settings.broker))
        this.#say('warn', 'broker: changes other than keys and roles take effect after a restart');
      const { waiting } = this.#source;
      if (waiting.length > 0) this.#say('warn', waitingText(waiting));
      const { host: address, port } = this.#listen ?? listen;
      if (gateway.url !== undefined && (listen.host !== address || listen.port !== port))
        this.#say(
          'warn',
          `listen: it stays at ${address}, port ${port}; another host or port takes effect after a restart`,
        );
      await atBroker.catch(this.#problem);
    } catch (error) {
      this.#say('error', 'the edited configuration cannot be used; the one before stays in effect');
      this.#problem(error);
    }
  }

  /** Who asks too early is told who we are, and no more. */
  #running(): Operations {
    return { version: async () => this.#facts(), ...this.#operations };
  }

  #facts() {
    const { config, dataDir } = this.#options;
    const { url } = this.#gateway ?? {};
    const { waiting } = this.#source;
    return {
      ...{ version, pid: process.pid, url, dataDir, config, startedAt: this.#startedAt, notes: this.#notes() },
      ...(this.#isEnding ? { isStopping: true } : {}),
      ...(waiting.length === 0 ? {} : { waiting }),
    };
  }

  /** Roles that are not listed: of keys in the configuration, and of workers whose keys are kept elsewhere. */
  #notes(): readonly string[] {
    const ofKeys = this.#unlistedRoles();
    const known = new Set(ofKeys.map(({ role }) => role));
    const ofWorkers = (this.#workers?.status().service.unlistedRoles ?? []).filter((role) => !known.has(role));
    return [
      ...ofKeys.map(({ key, role }) => `${unlistedRoleText(role)}: key '${key}' may use nothing; ${unlistedRoleHint}`),
      ...ofWorkers.map((role) => `${unlistedRoleText(role)}: its workers may use nothing; ${unlistedRoleHint}`),
    ];
  }

  #unlistedRoles(): readonly UnlistedRole[] {
    const { keys = {}, roles, unlistedRole } = this.#settings ?? {};
    return unlistedRoles(keys, roles, unlistedRole);
  }

  readonly #problem = (error: unknown): void => {
    if (!isHostError(error)) return this.#say('error', String(error instanceof Error ? error.message : error));
    // That a server is not to be had is told as an event of its own; what to do about it stands in the reason.
    const isTold = exitCodeOf(error) === EXIT.unavailable && isHostError(error.cause);
    const { server, field } = error.details;
    if (!isTold) this.#say('warn', error.message);
    const hint = isTold ? (error.cause as HostError).hint : error.hint;
    if (hint !== undefined)
      this.#say('warn', isTold ? `${server}: ${hint}` : `${field || server || 'hostler'}: ${hint}`);
  };

  #say(level: LogLevel, text: string): void {
    this.#log.say(level, text);
  }
}

/** Files that a sandboxed server must not read: the configuration with its keys, and the keys of the broker. */
function hiddenPaths(config: string, broker: BrokerSettings | undefined): string[] {
  const files = [broker?.keyFile, broker?.listen.tls?.key].filter((file) => file !== undefined);
  return [path.resolve(config), ...files.map((file) => path.resolve(path.dirname(path.resolve(config)), file))];
}

function figuresOf({ service, broker }: ReturnType<ServedWorkers['status']>): BrokerFigures {
  const { running, waiting, ...counted } = service;
  return { ...counted, callsRunning: running, callsWaiting: waiting, inside: broker };
}

/** The field says where in the file; the file is said too. It is not the command that was wrong. */
const inFile = (error: HostError, file: string): HostError =>
  error.details.reason === undefined ? error.with({ message: `${file}: ${error.message}`, reason: 'config' }) : error;
