/**
 * `hostler broker`: the broker alone, for hosts and workers of other processes. It keeps messages and knows who sent them; tools
 * are none of its business.
 * Not here: what a broker does (broker/embedded/), a broker within `hostler up` (up.ts).
 *
 * Invariant: whatever was begun is ended in the reverse order, also when a later step fails.
 */
import './plain-zod.js';

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
import { brokerLines } from './broker-words.js';
import type { Words } from './command.js';
import { controlPath } from './control/control-path.js';
import { openControl } from './control/control-server.js';
import { letterOperations } from './control/letter-operations.js';
import { prepareDataDir } from './data-dir.js';
import { EXIT } from './exit-codes.js';
import { type ConfigPlace, findConfig } from './find-config.js';
import { boundHeap } from './heap-bounds.js';
import { printJson } from './print.js';
import { dataDirOf } from './running.js';
import { LevelLog } from './stderr-log.js';
import { onStopSignal } from './stop-signals.js';
import { askTrust } from './trust/ask-trust.js';
import { TrustedSource } from './trust/trusted-source.js';
import { waitingText } from './trust/waiting-text.js';
import { portOf } from './up-options.js';
import { version } from './version.js';
import { contentOf, watchConfig } from './watch-config.js';

export async function broker(words: Words): Promise<number> {
  boundHeap();
  const place = findConfig({ given: words.text('config'), env: process.env, cwd: process.cwd() });
  const dataDir = path.resolve(process.cwd(), dataDirOf(words, process.env));
  const ends: (() => unknown)[] = [];
  const log = new LevelLog();
  const stopped = new Promise<void>((resolve) => onStopSignal(resolve));
  try {
    await begin(place, dataDir, words, log, ends);
    await stopped;
    return EXIT.done;
  } finally {
    for (let end = ends.pop(); end; end = ends.pop())
      await Promise.resolve(end()).catch((error: unknown) => tell(log, error));
  }
}

async function begin(
  place: ConfigPlace,
  dataDir: string,
  words: Words,
  log: LevelLog,
  ends: (() => unknown)[],
): Promise<void> {
  const problem = (error: unknown) => tell(log, error);
  const { file } = place;
  const source = new TrustedSource(place, process.env);
  const { confirmations } = source;
  const since = contentOf(file);
  const first = await source.open(askTrust(process.env));
  const settings = settingsOf(file, first);
  first.accept();
  log.level = settings.log.level;
  prepareDataDir(dataDir);
  let operations = {};
  const facts = async () => ({ version, pid: process.pid, dataDir, config: file });
  // First of all: whoever has the socket has the directory.
  const control = await openControl(controlPath(dataDir), () => ({ version: facts, ...operations }));
  ends.push(() => control.close());
  const store = await openBrokerStore({
    folder: storeFolder(dataDir),
    clock: systemClock,
    onProblem: ({ message, hint }) => {
      // What was promised to be kept is not.
      log.say('error', `broker: ${message}`);
      if (hint !== undefined) log.say('error', `broker: ${hint}`);
    },
  });
  ends.push(() => store.close());
  const listen = listenOf(settings.broker);
  const { host = listen.host, port = listen.port } = { host: words.text('host'), port: portOf(words.text('port')) };
  const lineOf = brokerLines(systemClock);
  const opened = await openBroker({
    store: store.mail,
    clock: systemClock,
    credentials: credentialsOf(parseKeys(settings.keys, problem)),
    limits: limitsOf(settings.broker),
    listen: { ...listen, host, port },
    onEvent: (event) => {
      const line = lineOf(event);
      if (line) log.say(...line);
    },
  });
  ends.push(() => opened.close());
  // What ran is in the journals of hosts, which are elsewhere.
  const letters = carefulLetters({
    ...{ letters: opened.deadLetters, journal: undefined, clock: systemClock },
    calls: () => opened.core.deadCalls(),
  });
  operations = letterOperations(() => letters);
  const onChange = () => {
    try {
      const edited = source.read();
      const changed = settingsOf(file, edited);
      const problems: HostError[] = [];
      const credentials = credentialsOf(parseKeys(changed.keys, (each) => problems.push(each)));
      // Everything is read, and nothing throws from here on.
      log.level = changed.log.level;
      for (const each of problems) problem(each);
      opened.rekey(credentials);
      edited.accept();
      log.say('info', 'the keys of the edited configuration are in effect');
      const { waiting } = source;
      if (waiting.length > 0) log.say('warn', waitingText(waiting));
    } catch (error) {
      log.say('error', 'the edited configuration cannot be used; the one before stays in effect');
      problem(error);
    }
  };
  const watched = { clock: systemClock, onProblem: problem, onChange };
  ends.push(watchConfig({ file, since, ...watched }));
  if (confirmations !== undefined) ends.push(watchConfig({ file: confirmations, ...watched }));
  if (words.has('json')) printJson({ ready: true, url: opened.url, pid: process.pid, dataDir });
  process.stderr.write(`hostler ${version}: hosts and workers connect at ${opened.url}\n`);
}

function settingsOf(file: string, { config }: Filled) {
  const { keys, log, broker: settings } = parseServing(config);
  if (settings?.url !== undefined)
    throw new HostError('invalid_spec', 'broker.url: names another broker, and this command is one', {
      field: 'broker.url',
      reason: 'config',
      hint: 'take it out of this configuration; it belongs to that of the host',
    });
  return { keys, log, broker: withFilesBelow(path.dirname(path.resolve(file)), settings ?? brokerEntry.parse({})) };
}

function tell(log: LevelLog, error: unknown): void {
  if (!isHostError(error)) return log.say('error', error instanceof Error ? error.message : String(error));
  log.say('warn', error.message);
  if (error.hint !== undefined) log.say('warn', error.hint);
}
