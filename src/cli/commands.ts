/**
 * Every command and its words. What a command does is loaded when it is asked for: starting is faster that way.
 */
import type { Command, CommandSpec } from './command.js';

const dataDir = { 'data-dir=': 'the data directory of the running Hostler' };
const json = { json: 'print JSON' };

const specs = {
  up: {
    name: 'up',
    usage:
      '[--config FILE] [--host ADDRESS] [--port N] [--data-dir DIR] [--auth key|none] [--stdio] [--json] [--show-key]',
    summary: 'Run the servers of a configuration and serve them to MCP clients.',
    options: {
      'config=': './hostler.json (not with --stdio), or hostler/hostler.json in your configuration folder',
      'host=': 'address to listen at, 127.0.0.1 unless the configuration says otherwise',
      'port=': 'port to listen at, 8383 unless the configuration says otherwise; 0 for any',
      'data-dir=': 'where keys, pins and lists are kept, hostler in your data folder',
      'auth=': 'key (a key is required) or none (loopback only)',
      stdio: 'serve one client over stdin and stdout; HTTP only with --port',
      json: 'print one line of JSON when it serves',
      'show-key': 'with --json: print the local key on every start, not only when it was just created',
    },
    positionals: [0, 0],
  },
  trust: {
    name: 'trust',
    usage: '[FILE] [--yes] | --list [--json] | --remove [FILE]',
    summary: 'Show what a hostler.json would run, and confirm that it may be used from its folder.',
    options: {
      yes: 'confirm without asking',
      list: 'show the files that are confirmed',
      remove: 'withdraw the confirmation of a file',
      ...json,
    },
    positionals: [0, 1],
  },
  status: {
    name: 'status',
    usage: '[--json] [--watch]',
    summary: 'Show every server and how it is.',
    options: { ...json, watch: 'go on showing, until Ctrl-C', ...dataDir },
    positionals: [0, 0],
  },
  tools: {
    name: 'tools',
    usage: '[--server S] [--json]',
    summary: 'List the tools of all servers, or of one; starts nothing.',
    options: { 'server=': 'only of this server', ...json, ...dataDir },
    positionals: [0, 0],
  },
  call: {
    name: 'call',
    usage: 'SERVER TOOL [JSON] [--arg k=v]... [--timeout 30s] [--json]',
    summary: 'Call a tool.',
    options: {
      'arg=*': 'one argument; its value is JSON where it can be read as such, else text',
      'timeout=': 'how long it may take, like 30s',
      json: 'print the result as the server wrote it',
      ...dataDir,
    },
    positionals: [2, 3],
  },
  start: {
    name: 'start',
    usage: 'SERVER',
    summary: 'Start a server, also one that was stopped.',
    options: dataDir,
    positionals: [1, 1],
  },
  stop: {
    name: 'stop',
    usage: 'SERVER',
    summary: 'Stop a server; neither calls nor timers bring it back.',
    options: dataDir,
    positionals: [1, 1],
  },
  reload: {
    name: 'reload',
    usage: 'SERVER',
    summary: 'Forgive a server everything and start it afresh.',
    options: dataDir,
    positionals: [1, 1],
  },
  why: {
    name: 'why',
    usage: 'SERVER[/TOOL] [--role R] [--json]',
    summary: 'Say who sees a server or a tool, and what a call would meet now.',
    options: { 'role=': 'of whom; without it, of the operator', ...json, ...dataDir },
    positionals: [1, 1],
  },
  logs: {
    name: 'logs',
    usage: 'SERVER [--follow]',
    summary: 'Show what happened to a server and what it wrote to stderr.',
    options: { follow: 'go on showing, until Ctrl-C', ...dataDir },
    positionals: [1, 1],
  },
  broker: {
    name: 'broker',
    usage: '[--config FILE] [--host ADDRESS] [--port N] [--data-dir DIR] [--json]',
    summary: 'Run the broker alone, for hosts and workers on other machines.',
    options: {
      'config=': './hostler.json, or hostler/hostler.json in your configuration folder',
      'host=': 'address to listen at, 127.0.0.1 unless the configuration says otherwise',
      'port=': 'port to listen at, 8384 unless the configuration says otherwise; 0 for any',
      'data-dir=': 'where messages are kept, hostler in your data folder',
      json: 'print one line of JSON when it serves',
    },
    positionals: [0, 0],
  },
  letters: {
    name: 'letters',
    usage: '[list [--json] | replay NUMBER [--force] | drop NUMBER]',
    summary: 'Show messages of the broker that could not be delivered; send one again, or drop it.',
    options: { force: 'of replay: also when nobody remembers whether it has run', ...json, ...dataDir },
    positionals: [0, 2],
  },
  key: {
    name: 'key',
    usage:
      'add NAME [--role R] [--worker|--host] [--mailbox M] [--expires DATE] [--nats] [--key-file FILE] | list [--json] | revoke NAME | nats',
    summary: 'Make, list and revoke the keys of clients, workers and hosts.',
    options: {
      'role=': 'what whoever holds it may use',
      worker: 'for a worker on another machine: it opens the broker, and nothing else',
      host: 'for a host that serves the broker of another machine',
      'mailbox=': 'under which name the broker knows it; by default that of the key',
      'expires=': 'when it ends, like 2027-01-31 or 2027-01-31T12:00:00Z',
      nats: 'a key pair for NATS, whose server knows only the public half',
      'key-file=': 'write the key into this new file instead of printing it',
      'listen=': 'of nats: where its server listens, 127.0.0.1:4222',
      'store-dir=': 'of nats: where its server keeps messages, /var/lib/nats',
      'config=': 'the configuration to change',
      ...json,
    },
    positionals: [1, 2],
  },
  doctor: {
    name: 'doctor',
    usage: '[--config FILE] [--json]',
    summary: 'Look for what keeps Hostler from working, and say what to do about it.',
    options: { 'config=': 'the configuration to look at', ...json, 'data-dir=': 'the data directory to look at' },
    positionals: [0, 0],
  },
  worker: {
    name: 'worker',
    usage: '--broker URL [--key-file FILE] [--timeout 60s] [--insecure] [--json]',
    summary: 'Serve the tools of a Hostler on another machine to one client over stdin and stdout.',
    options: {
      'broker=': 'address of the broker: wss://host/..., or nats://host:4222/mailbox',
      'key-file=': 'file with the key of this worker; without it $HOSTLER_KEY_FILE, else the key in $HOSTLER_KEY',
      'timeout=': 'how long a call may take whose client does not ask for progress, like 60s',
      insecure: 'connect to another machine without TLS: key, calls and results can be read on the way',
      json: 'print one line of JSON to stderr when its tools are known',
    },
    positionals: [0, 0],
  },
  probe: {
    name: 'probe',
    usage:
      '[--json] [--timeout 30s] [--env NAME=VALUE]... [--cwd DIR] [--sandbox group|standard] -- COMMAND... | [--header "NAME: VALUE"]... URL',
    summary: 'Start or reach one MCP server, show what it is and offers, and stop it.',
    options: {
      json: 'print one JSON object',
      'timeout=': 'how long the server may take to start, 30s',
      'env=*': 'NAME=VALUE for the server, or NAME to pass on the value that hostler has',
      'header=*': '"Name: value" for an HTTP server',
      'cwd=': 'folder the server runs in',
      'sandbox=': 'group, or standard (bubblewrap)',
    },
    positionals: [0, 1],
    takesCommand: true,
  },
} as const satisfies Record<string, CommandSpec>;

export type CommandName = keyof typeof specs;
export const commandSpecs: Readonly<Record<CommandName, CommandSpec>> = specs;
export const isCommand = (name: string): name is CommandName => Object.hasOwn(specs, name);

const runs: Readonly<Record<CommandName, () => Promise<Command['run']>>> = {
  up: async () => async (words) => (await (await import('./load-up.js')).loadUp(words))(words),
  trust: async () => (await import('./trust/trust.js')).trust,
  status: async () => (await import('./status.js')).status,
  tools: async () => (await import('./tools.js')).tools,
  call: async () => (await import('./call.js')).call,
  start: async () => (await import('./lifecycle.js')).lifecycle('start'),
  stop: async () => (await import('./lifecycle.js')).lifecycle('stop'),
  reload: async () => (await import('./lifecycle.js')).lifecycle('reload'),
  why: async () => (await import('./why.js')).why,
  logs: async () => (await import('./logs.js')).logs,
  broker: async () => (await import('./broker.js')).broker,
  letters: async () => (await import('./letters.js')).letters,
  key: async () => (await import('./key.js')).key,
  doctor: async () => (await import('./doctor.js')).doctor,
  worker: async () => (await import('./worker.js')).worker,
  probe: async () => (await import('./probe.js')).probe,
};

export const loadCommand = async (name: CommandName): Promise<Command> => ({
  ...commandSpecs[name],
  run: await runs[name](),
});
