/**
 * `hostler up --stdio`: relays one client to the host of its configuration, which it starts if none runs.
 * Imports as little as possible: every client of a user has one such process.
 */
import { systemClock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { isChildOf } from '../../transports/environment.js';
import type { ParsedArgs } from '../command.js';
import { prepareDataDir } from '../config/data-dir.js';
import { realPath } from '../config/find-config.js';
import { configConflict } from '../control/control-protocol.js';
import { EXIT } from '../exit-codes.js';
import { hostLogPath, socketPath } from '../process/host-address.js';
import { onStopSignals } from '../process/stop-signals.js';
import { type UpOptions, upOptions } from '../up/up-options.js';
import { version } from '../version.js';
import { type Hello, relayProtocol, variableNames, type Welcome } from './hello.js';
import { LogTail } from './log-tail.js';
import { isRefusedBySystem, type Opened, openLink } from './open-link.js';
import { Relay } from './relay.js';
import { joinHost } from './start-host.js';

/** Serves the client in this process; the argument says why. */
type ServeHere = (why: string) => Promise<number>;

const aliveMs = 60_000;
const lineChars = 2_000;
/** Codes of a wrong `--data-dir`, which the user has to correct. */
const wrongPathCodes: ReadonlySet<string> = new Set(['EEXIST', 'ENOTDIR', 'ENAMETOOLONG']);

/** `onServing`: called when the client has its first answer. By then the code of the start has run. */
export async function runRelay(args: ParsedArgs, serveHere: ServeHere, onServing: () => void): Promise<number> {
  const options = upOptions(args, process.env, process.cwd());
  const { dataDir } = options;
  if (isChildOf(dataDir, process.env)) throw containsItself(options.config);
  try {
    prepareDataDir(dataDir);
  } catch (error) {
    const reason = isHostError(error) ? error.details.reason : undefined;
    if (!isRefusedBySystem(reason) || wrongPathCodes.has(reason)) throw error;
    return serveHere(`${dataDir} cannot be used here (${reason})`);
  }
  // Timers of the clock do not keep the process alive.
  const alive = setInterval(() => {}, aliveMs);
  const ended = await new RelayRun(options, onServing).ended().finally(() => clearInterval(alive));
  return typeof ended === 'string' ? serveHere(ended) : ended;
}

class RelayRun {
  readonly #options: UpOptions;
  readonly #config: string;
  readonly #stopped = new AbortController();
  readonly #client = newId();
  readonly #relay: Relay;
  #tail: LogTail | undefined;
  #hasJoined = false;
  #isReleased = false;
  #lastFailure: string | undefined;
  #settle: (ended: number | string | HostError) => void = () => {};

  constructor(options: UpOptions, onServing: () => void) {
    this.#options = options;
    this.#config = realPath(options.config);
    this.#relay = new Relay({
      ...{ input: process.stdin, output: process.stdout, clock: systemClock, version },
      join: () => this.#join(),
      onJoined: (welcome) => this.#joined(welcome),
      onUnusable: (opened) => this.#unusable(opened),
      onFailure: (reason) => this.#failed(reason),
      onServing,
    });
  }

  /** Resolves with an exit code, or with the reason why this process must serve the client itself. */
  ended(): Promise<number | string> {
    return new Promise((resolve, reject) => {
      this.#settle = (ended) => {
        this.#isReleased = true;
        this.#tail?.close();
        if (isHostError(ended)) reject(ended);
        else resolve(ended);
      };
      onStopSignals((_signal, isAgain) => {
        // The part that serves the client now has its own listener.
        if (this.#isReleased) return;
        if (isAgain) process.exit(EXIT.failed);
        this.#stopped.abort();
        // The client has closed its input or was never connected, so it waits for no answers.
        if (this.#relay.isInputEnded || !this.#hasJoined) process.exit(EXIT.done);
        this.#relay.end();
      });
      void this.#relay.closed.then(() => {
        const code = this.#hasJoined || this.#lastFailure === undefined ? EXIT.done : EXIT.failed;
        // Ends the process even during a connection attempt, once all output is written to the client.
        process.stdout.write('', () => process.exit(code));
      });
      this.#relay.begin();
    });
  }

  #join(): Promise<Opened> {
    const { dataDir, port, host, auth } = this.#options;
    const file = socketPath(dataDir, 'stdio.sock');
    const isOpen = auth === 'none';
    const given = Object.entries({ host, port: port?.toString(), auth: isOpen ? auth : undefined });
    const flags = given.filter((entry): entry is [string, string] => entry[1] !== undefined);
    const script = process.argv[1] as string;
    // The hello reads the configuration, so it is built once and not for each connection attempt.
    const hello = this.#hello(Object.fromEntries(flags));
    return joinHost({
      ...{
        dataDir,
        config: this.#config,
        givenConfig: this.#options.config,
        clock: systemClock,
        signal: this.#stopped.signal,
        env: process.env,
      },
      command: [
        ...[process.execPath, ...process.execArgv, script, 'up', '--config', this.#options.config],
        ...['--data-dir', dataDir, ...flags.flatMap(([name, value]) => [`--${name}`, value])],
      ],
      open: () => openLink(file, hello, systemClock),
      // The tail of the previous host reads the same file, and would print the same lines.
      onLaunch: () => this.#tail?.close(),
      onLine: (line) => process.stderr.write(`${neutraliseLine(line, lineChars)}\n`),
    });
  }

  #hello(options: Readonly<Record<string, string>>): Hello {
    const variables = variableNames(this.#config).map((name) => [name, process.env[name]] as const);
    const env = Object.fromEntries(variables.filter((each): each is [string, string] => each[1] !== undefined));
    return { hostler: relayProtocol, version, client: this.#client, config: this.#config, env, options };
  }

  #joined({ pid, url, notes, version: ofHost }: Welcome): void {
    const { isJson, dataDir } = this.#options;
    if (isJson && !this.#hasJoined)
      process.stderr.write(`${JSON.stringify({ ready: true, url, key: null, pid, dataDir })}\n`);
    say('info', `joined Hostler ${ofHost} (pid ${pid})`);
    for (const note of notes) say('warn', note);
    this.#hasJoined = true;
    this.#lastFailure = undefined;
    this.#tail?.close();
    this.#tail = new LogTail(hostLogPath(dataDir), (line) => {
      if (/^\S+ (?:warn|error) /.test(line)) process.stderr.write(`${neutraliseLine(line, lineChars)}\n`);
    });
    this.#tail.follow();
  }

  #unusable(opened: Parameters<ConstructorParameters<typeof Relay>[0]['onUnusable']>[0]): void {
    const { dataDir } = this.#options;
    if (opened.kind === 'unreachable')
      return this.#settle(`the socket in ${dataDir} cannot be used here (${opened.code})`);
    this.#settle(configConflict(dataDir, opened.config, this.#config));
  }

  #failed(reason: string): void {
    if (reason !== this.#lastFailure) say('error', `Hostler cannot be reached: ${reason}`);
    this.#lastFailure = reason;
  }
}

/** Error for a relay that a server of the same Hostler started: it would connect Hostler to itself. */
const containsItself = (config: string): HostError =>
  new HostError(
    'invalid_spec',
    'this process was started by a server of the Hostler that it would connect to; a loop would follow',
    {
      reason: 'loop',
      hint: `remove 'hostler up --stdio' from the commands of the servers in ${config}; if a server starts it for another client, unset HOSTLER_RUN`,
    },
  );

const say = (level: 'info' | 'warn' | 'error', text: string): void => {
  process.stderr.write(`${systemClock.date().toISOString()} ${level.padEnd(5)} ${neutraliseLine(text, lineChars)}\n`);
};
