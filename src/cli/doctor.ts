/**
 * `hostler doctor`: checks the environment of Hostler. Starts nothing and changes nothing; exits with 1 when a check fails.
 * Invariant: every failed check has a hint.
 */
import { accessSync, constants, existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { readKeyFile } from '../broker/key-file.js';
import { requireTls } from '../broker/require-tls.js';
import { isRemark } from '../config/client-config.js';
import { readConfigFile } from '../config/config-file.js';
import { callsFolder } from '../config/folders.js';
import { type HostSettings, parseHostConfig } from '../config/host-config.js';
import { type KeyEntry, parseKeys } from '../config/keys.js';
import { listenEntry } from '../config/listen-settings.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio } from '../config/server-spec.js';
import { isLoopback } from '../config/values.js';
import type { StatusRow } from '../host/status.js';
import { faultsOf, type HostError, isHostError } from '../kernel/errors.js';
import { quoted } from '../kernel/shell-word.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { childEnvironment } from '../transports/environment.js';
import { resolveCommand } from '../transports/stdio/command.js';
import { type HostPaths, hostPaths } from '../transports/stdio/sandbox/host-paths.js';
import { sandboxView } from '../transports/stdio/sandbox/sandbox-view.js';
import { requireTrusted } from '../transports/stdio/state-dir.js';
import { type Command, hostOptions, jsonOption, type ParsedArgs } from './command.js';
import { dataDirOf, givenDataDir } from './config/data-dir.js';
import { type ConfigLocation, findConfig } from './config/find-config.js';
import { type Finding, loginFindings } from './config/login-findings.js';
import { hostDataDir } from './config/running-hosts.js';
import { connectControl, fetchRunningFacts } from './control/control-client.js';
import { controlPath, type RunningFacts, upgradeNotes } from './control/control-protocol.js';
import { EXIT } from './exit-codes.js';
import { counted, printJson, printLines } from './output/print.js';
import { stateText } from './output/states.js';
import { noteOf } from './output/status-table.js';
import { flow, type Line, type Style, screenOf, span } from './output/styled.js';
import { notTrusted } from './trust/ask-trust.js';
import { isConfirmed, readFound, trustStoreOf } from './trust/trusted-source.js';
import { hasPort, rememberedPort } from './up/port.js';

type FindConfig = () => ConfigLocation;

const nodeFloor = [20, 19] as const;

const lineChars = 400;
const indent = 8;

export const doctor: Command = {
  name: 'doctor',
  usage: '[--config FILE] [--json]',
  example: 'doctor',
  options: { ...jsonOption, ...hostOptions },
  positionals: [0, 0],
  async run(args) {
    const running = await runningHostler(args);
    const config = () =>
      findConfig({ given: args.text('config') ?? running?.config, env: process.env, cwd: process.cwd() });
    const dataDir = givenDataDir(args, process.env) ?? running?.dataDir ?? dataDirOf(fileOf(config), process.env);
    const examined = await examine(config, dataDir, process.env, running?.pid);
    const findings = [...examined, ...(await stateFindings(dataDir))];
    const isBroken = findings.some(({ level }) => level === 'broken');
    if (args.has('json')) printJson({ ok: !isBroken, findings });
    else {
      const end = isBroken ? span('bad', 'a check failed') : span('good', 'all checks passed');
      const screen = screenOf(process.stdout);
      const rows = findings.flatMap(lines).flatMap((line) => flow(line, screen, indent));
      printLines([...rows, '', end]);
    }
    return isBroken ? EXIT.failed : EXIT.done;
  },
};

const looks: Readonly<Record<Finding['level'], readonly [Style, symbol: string]>> = {
  ok: ['good', '✓'],
  note: ['busy', '!'],
  broken: ['bad', '✗'],
};

function lines({ check, level, what, hint }: Finding): Line[] {
  const [style, symbol] = looks[level];
  const first: Line = [span(style, level.padEnd(6), symbol), `  ${check}: ${neutraliseLine(what, lineChars)}`];
  return hint === undefined ? [first] : [first, `${' '.repeat(indent)}${neutraliseLine(hint, lineChars)}`];
}

/** The Hostler of this folder's configuration, else the only one that runs; undefined if none or several run. */
async function runningHostler(args: ParsedArgs): Promise<Partial<RunningFacts> | undefined> {
  try {
    const dataDir = await hostDataDir(args, 'ignore');
    const facts = await fetchRunningFacts(controlPath(dataDir));
    return facts && { ...facts, dataDir };
  } catch (error) {
    if (!isHostError(error)) throw error;
    return undefined;
  }
}

/** Reports each server of the running Hostler that cannot be used now, and why. */
async function stateFindings(dataDir: string): Promise<Finding[]> {
  const rows: StatusRow[] = [];
  try {
    const client = await connectControl(controlPath(dataDir));
    try {
      await client.request('status', {}, (row) => rows.push(row as StatusRow));
    } finally {
      client.close();
    }
  } catch (error) {
    // No Hostler is running, or it is stopping.
    if (!isHostError(error)) throw error;
  }
  return rows.flatMap((row): Finding[] => {
    const isDown = ['parked', 'ejected', 'auth_required'].includes(row.state);
    const check = `server ${row.name}`;
    // Notes are about repaired lists and about tools that wait for approval.
    const notes = (row.notes ?? []).map((what): Finding => ({ check, level: 'note', what }));
    // The entry itself is reported by configFindings.
    if (row.problem || !(isDown || row.toolsError !== undefined || row.circuit === 'open')) return notes;
    if (row.state === 'auth_required' && row.auth?.next !== undefined)
      return [...notes, { check, level: 'broken', what: 'needs a login', hint: row.auth.next }];
    const what = `is ${stateText(row.state)}; ${noteOf(row)}`;
    return [
      ...notes,
      {
        check,
        level: 'broken',
        what,
        hint: `hostler why ${row.name} and hostler logs ${row.name}`,
      },
    ];
  });
}

async function examine(
  config: FindConfig,
  dataDir: string,
  env: NodeJS.ProcessEnv,
  pid: number | undefined,
): Promise<Finding[]> {
  const findings: Finding[] = [nodeFinding(process.versions.node)];
  const settings = configFindings(config, env, findings);
  const servers = [...(settings?.mcpServers.values() ?? [])];
  const ownPaths = hostPathsOf(config, dataDir, env);
  for (const server of servers) findings.push(await serverFinding(server, env, ownPaths));
  findings.push(...(await loginFindings(servers, env, pid)));
  findings.push(await bubblewrapFinding(servers, env));
  findings.push(dataDirFinding(dataDir));
  findings.push(...setAsideFindings(dataDir));
  if (settings?.broker) findings.push(...brokerFindings(settings, config));
  const running = await socketFinding(dataDir, findings);
  if (!running) findings.push(await portFinding(settings, rememberedPort(dataDir)));
  return findings;
}

function nodeFinding(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const isEnough = major > nodeFloor[0] || (major === nodeFloor[0] && minor >= nodeFloor[1]);
  if (isEnough) return { check: 'node', level: 'ok', what: `version ${version}` };
  const hint = `install Node ${nodeFloor.join('.')} or newer`;
  return { check: 'node', level: 'broken', what: `version ${version} is too old`, hint };
}

/** `isPortChosen`: the configuration names a port, so `hostler up` uses no other. */
type Examined = HostSettings & { readonly isPortChosen: boolean };

function configFindings(config: FindConfig, env: NodeJS.ProcessEnv, findings: Finding[]): Examined | undefined {
  let locate = (error: HostError): HostError => error;
  const broken = (error: HostError): void => {
    const { message: what, hint } = locate(error);
    const level = isRemark(error) ? 'note' : 'broken';
    findings.push({ check: 'configuration', level, what, hint });
  };
  try {
    const location = config();
    const { file } = location;
    findings.push(...trustFindings(location, env));
    const { config: value, problems, locate: inFile } = readConfigFile(file, env);
    locate = inFile;
    for (const problem of problems) broken(problem);
    const settings = parseHostConfig(value, broken, true);
    parseKeys(settings.keys, broken);
    if (!findings.some(({ check, level }) => check === 'configuration' && level === 'broken')) {
      const what = `${file}: ${counted(settings.mcpServers.size, 'server')}`;
      findings.push({ check: 'configuration', level: 'ok', what });
    }
    return { ...settings, isPortChosen: hasPort(value as object) };
  } catch (error) {
    if (!isHostError(error)) throw error;
    for (const fault of faultsOf(error)) broken(fault);
    return undefined;
  }
}

/** An unconfirmed file is only a note: `hostler up` asks for the confirmation, or refuses with a hint. */
function trustFindings({ file, isFoundInFolder }: ConfigLocation, env: NodeJS.ProcessEnv): Finding[] {
  if (!isFoundInFolder) return [];
  const reading = readFound(file, env);
  const confirmed = trustStoreOf(env).find(reading.location);
  if (isConfirmed(reading, confirmed)) return [];
  const { message, hint } = notTrusted(reading, confirmed);
  return [{ check: 'trust', level: 'note', what: message, hint }];
}

/** Undefined if there is no configuration, which configFindings reports. */
function fileOf(config: FindConfig): string | undefined {
  try {
    return path.resolve(config().file);
  } catch {
    return undefined;
  }
}

/** Must return the same paths as `hostler up` uses. */
function hostPathsOf(config: FindConfig, dataDir: string, env: NodeJS.ProcessEnv): HostPaths {
  const file = fileOf(config);
  return hostPaths(env, dataDir, file === undefined ? [] : [file]);
}

async function serverFinding(
  { name, spec, isEnabled }: ServerDefinition,
  env: NodeJS.ProcessEnv,
  ownPaths: HostPaths,
): Promise<Finding> {
  const check = `server ${name}`;
  if (!isEnabled) return { check, level: 'note', what: 'is disabled in the configuration' };
  if (isAttached(spec)) return { check, level: 'ok', what: 'is attached by a program' };
  if (!isStdio(spec))
    return { check, level: 'ok', what: `at ${new URL(spec.url).origin}, which is not contacted here` };
  try {
    const cwd = spec.cwd ?? process.cwd();
    const own = childEnvironment(env, spec.env, '');
    const file = await resolveCommand({ server: name, command: spec.command, cwd, env: own });
    if (spec.sandbox === 'standard') {
      const paths = { ...spec, server: name, file, cwd: realpathSync(cwd), declaredCwd: spec.cwd };
      await sandboxView({ ...paths, searchPath: own.PATH ?? '', hostPaths: ownPaths, home: undefined });
    }
    return { check, level: 'ok', what: `command ${file}` };
  } catch (error) {
    if (!isHostError(error)) throw error;
    return { check, level: 'broken', what: error.message, hint: error.hint };
  }
}

async function bubblewrapFinding(servers: readonly ServerDefinition[], env: NodeJS.ProcessEnv): Promise<Finding> {
  const check = 'bubblewrap';
  const users = servers.filter(({ spec }) => isStdio(spec) && spec.sandbox === 'standard').map(({ name }) => name);
  try {
    const file = await resolveCommand({ server: check, command: 'bwrap', cwd: '/', env });
    return { check, level: 'ok', what: file };
  } catch {
    const hint = 'install the package bubblewrap, or set "sandbox" to "group"';
    if (users.length > 0)
      return { check, level: 'broken', what: `is missing; ${users.join(', ')} cannot start without it`, hint };
    return { check, level: 'note', what: 'is missing; no configured server needs it', hint };
  }
}

function dataDirFinding(dataDir: string): Finding {
  const check = 'data directory';
  if (!existsSync(dataDir)) return { check, level: 'ok', what: `${dataDir} is created at the first start` };
  try {
    requireTrusted(dataDir);
    const facts = statSync(dataDir);
    if (!facts.isDirectory())
      return { check, level: 'broken', what: `${dataDir} is not a folder`, hint: 'choose another one with --data-dir' };
    if ((facts.mode & 0o077) === 0) return { check, level: 'ok', what: dataDir };
    return { check, level: 'note', what: `${dataDir} can be read by others`, hint: `chmod 700 ${quoted(dataDir)}` };
  } catch (error) {
    if (!isHostError(error)) throw error;
    return { check, level: 'broken', what: error.message, hint: error.hint };
  }
}

/** Connects to nothing, because NATS may be on another machine. */
function brokerFindings({ broker, keys }: HostSettings, config: FindConfig): Finding[] {
  if (!broker) return [];
  const check = 'broker';
  const folder = path.dirname(path.resolve(config().file));
  const entries = [...parseKeys(keys, () => {}).values()];
  try {
    const { listen, url, insecure } = broker;
    if (url !== undefined) {
      requireTls(new URL(url), insecure);
      if (broker.keyFile !== undefined) readKeyFile(path.resolve(folder, broker.keyFile), 'broker.keyFile');
    } else if (listen.tls) {
      for (const file of [listen.tls.cert, listen.tls.key]) accessSync(path.resolve(folder, file), constants.R_OK);
    } else if (!isLoopback(listen.host) && !listen.insecure) {
      const hint = 'set broker.listen.tls, or broker.listen.insecure if the network itself is encrypted';
      return [{ check, level: 'broken', what: `${listen.host} would be served without TLS`, hint }];
    }
    const isUsable = (entry: KeyEntry) => entry.worker && (url === undefined ? entry.digest : entry.nkey) !== undefined;
    const kind = url === undefined ? '' : ' --nats';
    if (!entries.some(isUsable))
      return [
        {
          check,
          level: 'note',
          what: 'has no key of a worker',
          hint: `hostler key add NAME --worker W --role R${kind}`,
        },
      ];
    return [{ check, level: 'ok', what: url === undefined ? `workers connect to port ${listen.port}` : 'uses NATS' }];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (isHostError(error)) return [{ check, level: 'broken', what: message, hint: error.hint }];
    const hint = 'correct broker.listen.tls';
    return [{ check, level: 'broken', what: `a file of broker.listen.tls cannot be read (${code})`, hint }];
  }
}

/** Reports damaged databases that were renamed at a start, and the consequence of each. */
function setAsideFindings(dataDir: string): Finding[] {
  const places = [
    [dataDir, 'state', 'all tools were pinned again as new tools'],
    [callsFolder(dataDir), 'log of calls', 'earlier calls are not run again; they are answered as uncertain'],
  ] as const;
  return places.flatMap(([folder, check, meaning]): Finding[] => {
    const [first] = asideIn(folder);
    if (first === undefined) return [];
    const hint = `check the disk, then remove ${path.join(folder, first)}`;
    return [{ check, level: 'note', what: `a damaged database was set aside: ${meaning}`, hint }];
  });
}

/** The pattern excludes write-ahead logs. */
function asideIn(folder: string): string[] {
  try {
    return readdirSync(folder).filter((name) => /\.db\.unusable(?:-\d+)?$/.test(name));
  } catch {
    return [];
  }
}

/** Returns true if a Hostler is running. */
async function socketFinding(dataDir: string, findings: Finding[]): Promise<boolean> {
  const check = 'control socket';
  try {
    const file = controlPath(dataDir);
    const facts = statSync(file, { throwIfNoEntry: false });
    const other = facts && (await fetchRunningFacts(file));
    if (!facts) findings.push({ check, level: 'ok', what: 'no Hostler is running' });
    else if (!other)
      findings.push({
        check,
        level: 'note',
        what: 'was left by a Hostler that was killed; the next start replaces it',
      });
    else if ((facts.mode & 0o077) !== 0)
      findings.push({
        check,
        level: 'broken',
        what: `${file} can be used by others`,
        hint: `chmod 600 ${quoted(file)}`,
      });
    else findings.push({ check, level: 'ok', what: `a Hostler is running (pid ${other.pid ?? 'unknown'})` });
    for (const note of other?.environment ?? []) findings.push({ check: 'environment', level: 'note', what: note });
    for (const note of upgradeNotes(other ?? {})) findings.push({ check: 'version', level: 'note', what: note });
    return other !== undefined;
  } catch (error) {
    if (!isHostError(error)) throw error;
    findings.push({ check, level: 'broken', what: error.message, hint: error.hint });
    return false;
  }
}

async function portFinding(settings: Examined | undefined, remembered: number | undefined): Promise<Finding> {
  const check = 'port';
  const { host, port: wanted } = settings?.listen ?? listenEntry.parse({});
  const isChosen = settings?.isPortChosen === true;
  const port = isChosen ? wanted : (remembered ?? wanted);
  const code = await new Promise<string | undefined>((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'));
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
  if (code === undefined) return { check, level: 'ok', what: `${port} of ${host} is free` };
  if (code === 'EADDRINUSE' && !isChosen)
    return { check, level: 'note', what: `${port} of ${host} is already in use; hostler up takes a free one` };
  if (code === 'EADDRINUSE') {
    const hint = 'stop the other program, or use any free port with hostler up --port 0';
    return { check, level: 'broken', what: `${port} of ${host} is already in use`, hint };
  }
  return {
    check,
    level: 'broken',
    what: `${port} of ${host} cannot be used (${code})`,
    hint: 'correct listen.host and listen.port',
  };
}
