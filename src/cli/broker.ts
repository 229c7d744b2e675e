/**
 * `hostler broker`: runs the broker alone, for hosts and workers of other processes.
 * Not here: the broker itself (broker/embedded/), the broker within `hostler up` (up/run-up.ts).
 * Invariant: every opened part is closed in reverse order, also when a later step fails.
 */
import path from 'node:path';
import { credentialsOf } from '../broker/broker-keys.js';
import { carefulLetters } from '../broker/careful-letters.js';
import { openBroker } from '../broker/embedded/broker.js';
import { limitsOf, listenOf, storeFolder, withFilesBelow } from '../broker/engine-settings.js';
import { openBrokerStore } from '../broker/store/broker-store.js';
import { brokerEntry } from '../config/broker-settings.js';
import { parseServing } from '../config/host-config.js';
import { parseKeys } from '../config/keys.js';
import type { Filled } from '../config/placeholders.js';
import { systemClock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Command, ParsedArgs } from './command.js';
import { dataDirOf, prepareDataDir } from './config/data-dir.js';
import { type ConfigLocation, findConfig } from './config/find-config.js';
import { contentOf, watchConfig } from './config/watch-config.js';
import { controlPath } from './control/control-protocol.js';
import { openControl } from './control/control-server.js';
import { deadLetterOperations } from './control/operations.js';
import { EXIT } from './exit-codes.js';
import { brokerLines } from './output/broker-event-line.js';
import { printJson } from './output/print.js';
import { LevelLog } from './output/stderr-log.js';
import { waitingText } from './output/trust-text.js';
import { limitHeap } from './process/heap-flags.js';
import { onStopSignal } from './process/stop-signals.js';
import { askTrust } from './trust/ask-trust.js';
import { TrustedSource } from './trust/trusted-source.js';
import { portOf } from './up/up-options.js';
import { version } from './version.js';

export const broker: Command = {
  name: 'broker',
  usage: '[--config FILE] [--host ADDRESS] [--port N] [--data-dir DIR] [--json]',
  options: {
    'config=': './hostler.json, or hostler/hostler.json in your configuration folder',
    'host=': 'address to listen on, 127.0.0.1 unless the configuration has another',
    'port=': 'port to listen on, 8384 unless the configuration has another; 0 for any',
    'data-dir=': 'folder for messages, hostler in your data folder',
    json: 'print one line of JSON when it serves',
  },
  positionals: [0, 0],
  async run(args) {
    limitHeap();
    const location = findConfig({ given: args.text('config'), env: process.env, cwd: process.cwd() });
    const dataDir = path.resolve(process.cwd(), dataDirOf(args, process.env));
    const closers: (() => unknown)[] = [];
    const log = new LevelLog();
    const stopped = new Promise<void>((resolve) => onStopSignal(resolve));
    try {
      await begin(location, dataDir, args, log, closers);
      await stopped;
      return EXIT.done;
    } finally {
      for (let close = closers.pop(); close; close = closers.pop())
        await Promise.resolve(close()).catch((error: unknown) => logError(log, error));
    }
  },
};

async function begin(
  location: ConfigLocation,
  dataDir: string,
  args: ParsedArgs,
  log: LevelLog,
  closers: (() => unknown)[],
): Promise<void> {
  const problem = (error: unknown) => logError(log, error);
  const { file } = location;
  const source = new TrustedSource(location, process.env);
  const { confirmations } = source;
  const since = contentOf(file);
  const first = await source.open(askTrust(process.env));
  const settings = settingsOf(file, first);
  first.accept();
  log.level = settings.log.level;
  prepareDataDir(dataDir);
  let operations = {};
  const facts = async () => ({ version, pid: process.pid, dataDir, config: file });
  // The control socket opens first: it is the lock of the data directory.
  const control = await openControl(controlPath(dataDir), () => ({ version: facts, ...operations }));
  closers.push(() => control.close());
  const store = await openBrokerStore({
    folder: storeFolder(dataDir),
    clock: systemClock,
    onProblem: ({ message, hint }) => {
      log.write('error', `broker: ${message}`);
      if (hint !== undefined) log.write('error', `broker: ${hint}`);
    },
  });
  closers.push(() => store.close());
  const listen = listenOf(settings.broker);
  const { host = listen.host, port = listen.port } = { host: args.text('host'), port: portOf(args.text('port')) };
  const lineOf = brokerLines(systemClock);
  const opened = await openBroker({
    store: store.mail,
    clock: systemClock,
    credentials: credentialsOf(parseKeys(settings.keys, problem)),
    limits: limitsOf(settings.broker),
    listen: { ...listen, host, port },
    onEvent: (event) => {
      const line = lineOf(event);
      if (line) log.write(...line);
    },
  });
  closers.push(() => opened.close());
  // Only hosts have journals of calls.
  const letters = carefulLetters({
    ...{ letters: opened.deadLetters, journal: undefined, clock: systemClock },
    calls: () => opened.core.deadCalls(),
  });
  operations = deadLetterOperations(() => letters);
  const onChange = () => {
    try {
      const edited = source.read();
      const changed = settingsOf(file, edited);
      const problems: HostError[] = [];
      const credentials = credentialsOf(parseKeys(changed.keys, (each) => problems.push(each)));
      // No step from here on throws.
      log.level = changed.log.level;
      for (const each of problems) problem(each);
      opened.rekey(credentials);
      edited.accept();
      log.write('info', 'the keys of the edited configuration are in effect');
      const { waiting } = source;
      if (waiting.length > 0) log.write('warn', waitingText(waiting));
    } catch (error) {
      log.write('error', 'the edited configuration is invalid; the previous one stays in effect');
      problem(error);
    }
  };
  const watched = { clock: systemClock, onProblem: problem, onChange };
  closers.push(watchConfig({ file, since, ...watched }));
  if (confirmations !== undefined) closers.push(watchConfig({ file: confirmations, ...watched }));
  if (args.has('json')) printJson({ ready: true, url: opened.url, pid: process.pid, dataDir });
  process.stderr.write(`hostler ${version}: hosts and workers connect at ${opened.url}\n`);
}

function settingsOf(file: string, { config }: Filled) {
  const { keys, log, broker: settings } = parseServing(config);
  if (settings?.url !== undefined)
    throw new HostError('invalid_spec', 'broker.url: is for hosts that use a remote broker, not for hostler broker', {
      field: 'broker.url',
      reason: 'config',
      hint: 'remove it from this configuration and put it into that of the host',
    });
  return { keys, log, broker: withFilesBelow(path.dirname(path.resolve(file)), settings ?? brokerEntry.parse({})) };
}

function logError(log: LevelLog, error: unknown): void {
  if (!isHostError(error)) return log.write('error', error instanceof Error ? error.message : String(error));
  log.write('warn', error.message);
  if (error.hint !== undefined) log.write('warn', error.hint);
}
