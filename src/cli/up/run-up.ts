/**
 * `hostler up`: reads the configuration, locks the data directory, runs the servers and serves clients until it is stopped.
 * Not here: options (up-options.ts), the first screen (output/first-screen.ts), serving (gateway/).
 * Invariants: stdout gets one line of JSON or the messages of one client, nothing else. Every opened part is closed in reverse
 * order, also when a later step fails. An invalid edit of the configuration changes nothing.
 */
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { ServedWorkers, ServeWorkers } from '../../broker/serve-workers.js';
import { noteReason } from '../../config/client-config.js';
import { configFaults, parseServing } from '../../config/host-config.js';
import { parseKeys } from '../../config/keys.js';
import { drainMsOf, type ListenSettings, type LogLevel } from '../../config/listen-settings.js';
import { type UnlistedRole, unlistedRoleHint, unlistedRoles, unlistedRoleText } from '../../config/unlisted-roles.js';
import { createGateway, type Gateway, gatewayCapabilities } from '../../gateway/gateway.js';
import { Host } from '../../host/host.js';
import type { HostConfig } from '../../host/host-interface.js';
import { setBounded } from '../../kernel/bounded-map.js';
import { systemClock } from '../../kernel/clock.js';
import { faultsOf, type HostError, isHostError, joinFaults, thrownText } from '../../kernel/errors.js';
import { createRedactor } from '../../kernel/redact.js';
import type { ParsedArgs } from '../command.js';
import { prepareDataDir } from '../config/data-dir.js';
import { registerHost } from '../config/running-hosts.js';
import { contentOf, watchConfig } from '../config/watch-config.js';
import { type BrokerFacts, controlPath } from '../control/control-protocol.js';
import { type Operations, openControl } from '../control/control-server.js';
import { createOperations } from '../control/operations.js';
import { EXIT, exitCodeOf } from '../exit-codes.js';
import { brokerLines } from '../output/broker-event-line.js';
import { firstLine, firstScreen } from '../output/first-screen.js';
import { printJson, printLines } from '../output/print.js';
import { LevelLog } from '../output/stderr-log.js';
import { screenOf } from '../output/styled.js';
import { waitingText } from '../output/trust-text.js';
import { onStopSignals } from '../process/stop-signals.js';
import { askTrust } from '../trust/ask-trust.js';
import { TrustedSource, type UsableConfig } from '../trust/trusted-source.js';
import { version } from '../version.js';
import { applyConfig } from './apply-config.js';
import { createSecrets } from './create-secrets.js';
import { DisabledItems } from './disabled-items.js';
import { hasPort, listenAnywhere } from './port.js';
import { ServerLogs } from './server-logs.js';
import { findRunning, joinRunning, openStdioSocket, stdioPath } from './stdio-socket.js';
import { upIdentity } from './up-identity.js';
import { listenOf, type UpOptions, upOptions } from './up-options.js';

/** Bound of a manifest in broker/protocol/limits.ts. */
const manifestMiB = 4;
const notesMax = 100;

/** Loads the broker, which most starts do not need. A parameter, because the bundle cannot import files. */
type LoadServeWorkers = () => Promise<ServeWorkers>;

export async function runUp(args: ParsedArgs, loadServeWorkers: LoadServeWorkers): Promise<number> {
  const options = upOptions(args, process.env, process.cwd());
  const run = new Run(options, loadServeWorkers);
  const stopped = run.untilStopped();
  try {
    if (await run.joined()) return EXIT.done;
    await run.begin();
    run.announce();
    await stopped;
    return EXIT.done;
  } catch (error) {
    // Another Hostler started at the same time and owns the data directory now.
    if (isInUse(error) && (await run.joined())) return EXIT.done;
    throw error;
  } finally {
    await run.end();
  }
}

const isInUse = (error: unknown): boolean => isHostError(error) && error.details.reason === 'in_use';

class Run {
  readonly #options: UpOptions;
  readonly #loadServeWorkers: LoadServeWorkers;
  readonly #redactor = createRedactor();
  readonly #startedAt = systemClock.date().toISOString();
  readonly #closers: (() => unknown)[] = [];
  #operations: Operations = {};
  readonly #log = new LevelLog((text) => this.#redactor.mask(text));
  readonly #source: TrustedSource;
  #host: Host | undefined;
  #gateway: Gateway | undefined;
  #workers: ServedWorkers | undefined;
  #settings: ReturnType<typeof parseServing> | undefined;
  /** Adds the place in the file to an error of the configuration. */
  #locate: UsableConfig['locate'] = (error) => error;
  readonly #noted = new Map<string, true>();
  #listen: ListenSettings | undefined;
  #stop: () => void = () => {};
  readonly #stopped = new AbortController();
  /** Number of clients on stdio and on the stdio socket. */
  #pipes = 0;
  #isServing = false;
  #isEnding = false;

  constructor(options: UpOptions, loadServeWorkers: LoadServeWorkers) {
    this.#options = options;
    this.#loadServeWorkers = loadServeWorkers;
    const { config: file, isFoundInFolder } = options;
    this.#source = new TrustedSource({ file, isFoundInFolder }, process.env);
  }

  /** With --stdio, relays this client to a running Hostler with the same configuration. Returns true if it was served. */
  async joined(): Promise<boolean> {
    const { isStdio, isJson, port, dataDir } = this.#options;
    const running = isStdio && port === undefined ? await findRunning(this.#options, systemClock) : undefined;
    if (!running) return false;
    const { pid, url } = running;
    if (isJson) process.stderr.write(`${JSON.stringify({ ready: true, url: url ?? null, key: null, pid, dataDir })}\n`);
    this.#logText('info', `using the Hostler that is already running (pid ${pid})`);
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
    // The control socket opens first: it is the lock of the data directory.
    const control = await openControl(controlPath(dataDir), () => this.#running());
    this.#closers.push(() => control.close());
    this.#closers.push(registerHost(dataDir, process.env));
    const { identity, folder } = upIdentity(this.#options.config, settings.identity, this.#redactor, this.#problem);
    this.#closers.push(() => identity.close());
    const host = new Host({
      client: { name: 'hostler', version, capabilities: gatewayCapabilities },
      stateDir: dataDir,
      hiddenPaths: [...hiddenPaths(this.#options.config, settings), ...(folder === undefined ? [] : [folder])],
      authProvider: (server) => identity.providerFor(server),
      ambient: process.env,
      redactor: this.#redactor,
      secrets: createSecrets(process.env, this.#redactor),
      onProblem: this.#problem,
    });
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
    this.#operations = createOperations({ host, logs, clock: systemClock, facts: () => this.#facts(), disabled });
    const { isStdio, port } = this.#options;
    // With --stdio only --port opens a port: clients with different configurations each run a Hostler.
    // The port opens before any server starts, so a port in use has no side effects.
    const isChosen = port !== undefined || hasPort(config);
    if (!isStdio || port !== undefined)
      await (isChosen ? gateway.listen() : listenAnywhere(gateway, dataDir, listen.port, this.#problem));
    await host.open(config);
    gateway.opened();
    await this.#serveWorkers(host, settings);
    this.#isServing = true;
    // Two turns of the event loop accept and read waiting clients, so they are answered before the rest is set up.
    for (let turns = 0; gateway.url !== undefined && turns < 2; turns++) await nextTurn();
    const pipes = await openStdioSocket(stdioPath(dataDir), (socket) => this.#pipe(gateway, socket, socket));
    this.#closers.splice(-1, 0, () => pipes.close());
    // The stdio socket stops first: a client that connects during the drain retries instead of being cut off.
    this.#closers.push(() => pipes.stop());
    if (isStdio) void this.#pipe(gateway, process.stdin, process.stdout);
    this.#closers.push(
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
    this.#closers.push(watchConfig({ file: confirmations, clock: systemClock, onChange, onProblem: this.#problem }));
  }

  async #serveWorkers(host: Host, { broker, keys }: ReturnType<typeof parseServing>): Promise<void> {
    if (!broker) return;
    const serveWorkers = await this.#loadServeWorkers();
    const lineOf = brokerLines(systemClock);
    const workers = await serveWorkers({
      host,
      settings: broker,
      // The gateway has reported the problems of keys.
      keys: parseKeys(keys, () => {}),
      dataDir: this.#options.dataDir,
      folder: path.dirname(path.resolve(this.#options.config)),
      isRolelessAllowed: () => this.#settings?.unlistedRole === 'allow',
      clock: systemClock,
      onEvent: (event) => {
        // The parser has reported the roles of configured keys.
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

  /** With --stdio, Hostler stops when its last client disconnects. */
  async #pipe(gateway: Gateway, input: Readable, output: Writable): Promise<void> {
    this.#pipes++;
    await gateway.serveStdio(input, output).catch(this.#problem);
    if (--this.#pipes === 0 && this.#options.isStdio) this.#stop();
  }

  announce(): void {
    const { isJson, isStdio, showsKey, config, dataDir } = this.#options;
    const { url, key, isNewKey, keyFile } = this.#gateway ?? {};
    const broker = this.#workers?.url;
    // The output of later starts, and stderr with --stdio, often go to log files, which must not contain the key.
    const isKeyShown = showsKey || (isNewKey === true && !isStdio);
    const ready = {
      ...{ ready: true, url: url ?? null, key: isKeyShown ? (key ?? null) : null, pid: process.pid, dataDir },
      ...(broker === undefined ? {} : { broker }),
    };
    if (isJson && isStdio) process.stderr.write(`${JSON.stringify(ready)}\n`);
    else if (isJson) printJson(ready);
    const shown =
      key === undefined || keyFile === undefined ? undefined : { text: key, isNew: isNewKey === true, file: keyFile };
    const facts = { version, url, config, dataDir, key: shown };
    if (process.stderr.isTTY) {
      const rows = this.#host?.status() ?? [];
      printLines(['', ...firstScreen({ ...facts, rows, screen: screenOf(process.stderr) }), ''], process.stderr);
    } else process.stderr.write(`${firstLine({ ...facts, servers: this.#host?.names().length ?? 0 })}\n`);
  }

  /** Resolves with the first signal. The second ends the process, and the death watch ends the servers. */
  untilStopped(): Promise<void> {
    return new Promise((resolve) => {
      this.#stop = resolve;
      this.#stopped.signal.addEventListener('abort', () => resolve());
      onStopSignals((signal, isAgain) => {
        if (isAgain || this.#isEnding) process.exit(EXIT.failed);
        this.#isEnding = true;
        const drainS = this.#drainMs() / 1_000;
        const wait = drainS === 0 ? '' : `; running requests have up to ${drainS} s`;
        this.#logText('info', `${signal}: stopping${wait}; send it again to stop at once`);
        this.#stopped.abort();
        // Hostler does not serve yet, so no request has to be drained.
        if (!this.#isServing && !this.#options.isStdio) void this.end().then(() => process.exit(EXIT.failed));
      });
    });
  }

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
      const { config, secrets, problems, locate, accept } = first ?? this.#source.read();
      for (const secret of secrets) this.#redactor.know(secret);
      // The host parses the servers and reports problems of single entries.
      const settings = servingOf(config, locate);
      this.#locate = locate;
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
      this.#logText('error', 'the edited configuration is invalid; the previous one stays in effect');
      for (const fault of isHostError(error) ? faultsOf(error) : [error]) this.#problem(fault);
    }
  }

  /** Until the start is complete, `version` is the only operation. */
  #running(): Operations {
    return { version: async () => this.#facts(), ...this.#operations };
  }

  #facts() {
    const { config, dataDir } = this.#options;
    const { url } = this.#gateway ?? {};
    const { waiting } = this.#source;
    return {
      ...{ version, pid: process.pid, url, dataDir, config, startedAt: this.#startedAt, notes: this.#notes() },
      ...(this.#workers ? { broker: brokerFacts(this.#workers) } : {}),
      ...(this.#isEnding ? { isStopping: true } : {}),
      ...(waiting.length === 0 ? {} : { waiting }),
    };
  }

  /** Reports unlisted roles of keys in the configuration, and of workers whose keys are stored elsewhere. */
  #notes(): readonly string[] {
    const ofKeys = this.#unlistedRoles();
    const known = new Set(ofKeys.map(({ role }) => role));
    const { unlistedRoles: ofBroker = [], tooLarge = [] } = this.#workers?.status() ?? {};
    const ofWorkers = ofBroker.filter((role) => !known.has(role));
    return [
      ...ofKeys.map(({ key, role }) => `${unlistedRoleText(role)}: key '${key}' may use nothing; ${unlistedRoleHint}`),
      ...ofWorkers.map((role) => `${unlistedRoleText(role)}: its workers may use nothing; ${unlistedRoleHint}`),
      ...tooLarge.map((server) => `the tools of ${server} are larger than ${manifestMiB} MiB: workers do not see them`),
    ];
  }

  #unlistedRoles(): readonly UnlistedRole[] {
    const { keys = {}, roles, unlistedRole } = this.#settings ?? {};
    return unlistedRoles(keys, roles, unlistedRole);
  }

  readonly #problem = (given: unknown): void => {
    // The text of any other error may quote a peer.
    if (!isHostError(given)) return this.#logText('error', this.#redactor.redact(thrownText(given)));
    const error = this.#locate(given);
    if (error.details.reason === noteReason) return this.#noteOnce(error);
    // An event has already logged an unavailable server; only the hint of its cause is new.
    const isLogged = exitCodeOf(error) === EXIT.unavailable && isHostError(error.cause);
    const { server, field } = error.details;
    if (!isLogged) this.#logText('warn', error.message);
    const hint = isLogged ? (error.cause as HostError).hint : error.hint;
    if (hint !== undefined) this.#logText('warn', `${(!isLogged && field) || server || 'hostler'}: ${hint}`);
  };

  /** A remark about the configuration is logged once, not at each edit. */
  #noteOnce({ message, hint }: HostError): void {
    if (this.#noted.has(message)) return;
    setBounded(this.#noted, message, true, notesMax);
    this.#logText('info', `${message}; ${hint}`);
  }

  #logText(level: LogLevel, text: string): void {
    this.#log.write(level, text);
  }
}

/** Throws all faults of the configuration with their places. */
function servingOf(config: unknown, locate: UsableConfig['locate']): ReturnType<typeof parseServing> {
  try {
    return parseServing(config);
  } catch (error) {
    throw isHostError(error) ? joinFaults(configFaults(config, true).map(locate)) : error;
  }
}

/** Files that a sandboxed server must not read: the configuration, and the keys of the listeners and of the broker. */
function hiddenPaths(config: string, { broker, listen }: ReturnType<typeof parseServing>): string[] {
  const files = [listen.tls?.key, broker?.keyFile, broker?.listen.tls?.key].filter((file) => file !== undefined);
  return [path.resolve(config), ...files.map((file) => path.resolve(path.dirname(path.resolve(config)), file))];
}

function brokerFacts({ url, status }: ServedWorkers): BrokerFacts {
  const { engine, isConnected, connectedWorkers, waiting, running, oldestMs, uncertain } = status();
  return { engine, url, isConnected, connectedWorkers, waiting, running, oldestMs, uncertain };
}

/** Adds the file to an error of the configuration. `reason` sets exit code 1 instead of 2 (exit-codes.ts). */
const inFile = (error: HostError, file: string): HostError =>
  error.details.reason === undefined ? error.with({ message: `${file}: ${error.message}`, reason: 'config' }) : error;
