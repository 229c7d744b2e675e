/**
 * A host in the process of one command, for `call` and `tools` when no Hostler runs. It has the configuration, the trust check and
 * the data directory of `hostler up`, and neither a port nor a gateway.
 * Invariants: a server starts only when an operation needs it. The control socket is the lock of the data directory: `call` and
 * `tools` of other processes wait until this host ends, and all other commands are refused. After `close`, and after a stop signal,
 * no process is left.
 */
import { loadLibsql } from '../../catalog/store/libsql.js';
import type { HostConfig } from '../../host/host-interface.js';
import { systemClock } from '../../kernel/clock.js';
import { HostError, isHostError, thrownText } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { createRedactor, type Redactor } from '../../kernel/redact.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { ParsedArgs } from '../command.js';
import { prepareDataDir } from '../config/data-dir.js';
import type { HostClient } from '../control/control-client.js';
import { controlPath } from '../control/control-protocol.js';
import { type Operations, openControl } from '../control/control-server.js';
import { listUnlisted } from '../control/find-tool.js';
import { createOperations } from '../control/operations.js';
import { EXIT } from '../exit-codes.js';
import { onStopSignals } from '../process/stop-signals.js';
import { askTrust } from '../trust/ask-trust.js';
import { TrustedSource } from '../trust/trusted-source.js';
import { version } from '../version.js';
import { createUpHost } from './create-host.js';
import { DisabledItems } from './disabled-items.js';
import { ServerLogs } from './server-logs.js';
import { inFile, servingOf } from './serving-config.js';
import { shownError } from './shown-error.js';
import { type UpOptions, upOptions } from './up-options.js';

/** Rejects with `in_use` if another process holds the data directory. */
export async function openLocalHost(args: ParsedArgs): Promise<HostClient> {
  const options = upOptions(args, process.env, process.cwd());
  const { config: file, dataDir } = options;
  const redactor = createRedactor();
  const onProblem = problemPrinter(redactor);
  const { config, settings } = await readConfig(options, redactor);
  prepareDataDir(dataDir);
  await loadLibsql();
  const startedAt = systemClock.date().toISOString();
  const facts = () => ({
    ...{ version, pid: process.pid, url: undefined, dataDir, config: file, startedAt },
    isStopping: true,
  });
  let operations: Operations = {};
  const served = () => ({ ...refusals(operations), tool: untilEnd, tools: untilEnd, version: async () => facts() });
  const control = await openControl(controlPath(dataDir), served, systemClock, file);
  const closers: (() => unknown)[] = [() => control.close()];
  let closing: Promise<void> | undefined;
  const close = () => (closing ??= closeAll(closers, onProblem));
  const interrupted = new AbortController();
  onStopSignals((signal, isAgain) => {
    if (isAgain) process.exit(EXIT.failed);
    interrupted.abort();
    // The process then ends by the signal, as any other command does.
    void close().then(() => process.removeAllListeners(signal) && process.kill(process.pid, signal));
  });
  try {
    const { host, identity } = createUpHost({ file, dataDir, settings, capabilities: {}, redactor, onProblem });
    const logs = new ServerLogs(host, systemClock, redactor.mask);
    closers.push(
      () => identity.close(),
      () => host.close(),
      () => logs.close(),
    );
    const disabled = new DisabledItems(dataDir, host);
    operations = createOperations({ host, logs, clock: systemClock, facts, disabled, end: () => {}, shownError });
    await host.open(withoutEagerServers(config as HostConfig));
    const request: HostClient['request'] = async (op, params = {}, emit = () => {}) => {
      if (op === 'tools') await listUnlisted(host, params.server as string | undefined);
      try {
        return await operations[op]?.(params, { signal: interrupted.signal, emit });
      } catch (error) {
        throw isHostError(error) ? shownError(error) : error;
      }
    };
    return { request, close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function readConfig({ config: file, isFoundInFolder }: UpOptions, redactor: Redactor) {
  try {
    const { config, secrets, locate } = await new TrustedSource({ file, isFoundInFolder }, process.env).open(
      askTrust(process.env),
    );
    for (const secret of secrets) redactor.know(secret);
    return { config, settings: servingOf(config, locate) };
  } catch (error) {
    throw isHostError(error) ? inFile(error, file) : error;
  }
}

/** Makes all servers lazy. An invalid entry stays as it is, and the host reports it. */
function withoutEagerServers(config: HostConfig): HostConfig {
  const entries = Object.entries(config.mcpServers ?? {}).map(([name, entry]) => {
    const isEager = typeof entry === 'object' && entry !== null && 'lazy' in entry && entry.lazy === false;
    return [name, isEager ? { ...entry, lazy: true } : entry];
  });
  return { ...config, mcpServers: Object.fromEntries(entries) };
}

/** A problem of one server or entry is reported by the command that uses it. */
const problemPrinter = (redactor: Redactor) => (error: unknown) => {
  if (isHostError(error) && (error.details.server !== undefined || error.code === 'invalid_spec')) return;
  const text = isHostError(error) ? error.message : redactor.redact(thrownText(error));
  process.stderr.write(`hostler: ${neutraliseLine(text, LIMITS.quotedChars)}\n`);
};

/** Never answers: the client is disconnected when this command ends, and then tries again (with-host.ts). */
const untilEnd = () => new Promise<never>(() => {});

function refusals(operations: Operations): Operations {
  const refuse = async () => {
    throw new HostError(
      'overloaded',
      `another hostler call or tools command (pid ${process.pid}) uses this data directory`,
      {
        ...{ reason: 'one_command', execution: 'not_executed' },
        hint: 'try again when it has ended',
      },
    );
  };
  return Object.fromEntries(Object.keys(operations).map((op) => [op, refuse]));
}

async function closeAll(closers: (() => unknown)[], onProblem: (error: unknown) => void): Promise<void> {
  for (let end = closers.pop(); end; end = closers.pop()) {
    try {
      await end();
    } catch (error) {
      onProblem(error);
    }
  }
}
