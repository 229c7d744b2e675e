/**
 * Table of all commands. A new command is one file and one line here.
 * The file of a command is imported when the command runs, so `hostler up` does not load the other files.
 */
import type { Command } from './command.js';

type Entry = readonly [summary: string, load: () => Promise<Command>];

const table = {
  up: ['Run the servers of a configuration and serve them to MCP clients.', async () => (await import('./up.js')).up],
  trust: ['Show what a hostler.json would run, and confirm it.', async () => (await import('./trust.js')).trust],
  status: ['Show every server and its state.', async () => (await import('./status.js')).status],
  tools: ['List the tools of all servers, or of one; starts nothing.', async () => (await import('./tools.js')).tools],
  call: ['Call a tool.', async () => (await import('./call.js')).call],
  start: ['Start a server, also one that was stopped.', async () => (await import('./start-stop.js')).start],
  stop: ['Stop a server; neither calls nor timers restart it.', async () => (await import('./start-stop.js')).stop],
  reload: ['Clear the failures of a server and restart it.', async () => (await import('./start-stop.js')).reload],
  why: ['Explain who may use a tool and what a call would meet now.', async () => (await import('./why.js')).why],
  logs: ['Show the events of a server and its stderr.', async () => (await import('./logs.js')).logs],
  broker: ['Say what replaces the separate broker.', async () => (await import('./broker.js')).broker],
  key: ['Create, list and revoke keys of clients, workers and hosts.', async () => (await import('./key.js')).key],
  doctor: ['Check what could keep Hostler from working.', async () => (await import('./doctor.js')).doctor],
  worker: [
    'Serve the tools of a remote Hostler to one stdio client.',
    async () => (await import('./worker.js')).worker,
  ],
  probe: ['Reach one MCP server, show what it offers, and stop it.', async () => (await import('./probe.js')).probe],
} satisfies Record<string, Entry>;

export type CommandName = keyof typeof table;

export const commands: Readonly<Record<CommandName, Entry>> = table;
export const isCommand = (name: string): name is CommandName => Object.hasOwn(table, name);
