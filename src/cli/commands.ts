/**
 * Table of all commands. A new command is one file and one line here.
 * The file of a command is imported when the command runs, so a command does not load the files of another.
 */
import type { CommandTable } from './command.js';

export const commands: CommandTable = {
  up: ['Run the servers of a configuration and serve them.', async () => (await import('./up.js')).up],
  status: ['Show every server and its state.', async () => (await import('./status.js')).status],
  tools: ['List the tools of all servers, or of one.', async () => (await import('./tools.js')).tools],
  call: ['Call a tool.', async () => (await import('./call.js')).call],
  logs: ['Show the events of servers and their stderr.', async () => (await import('./logs.js')).logs],
  why: ['Explain who may use a tool, and what a call would do.', async () => (await import('./why.js')).why],
  doctor: ['Check what could keep Hostler from working.', async () => (await import('./doctor.js')).doctor],
  start: [
    'Start a server, also one that was stopped.',
    async () => (await import('./start-stop.js')).start,
    'Start, stop or reset one server.',
  ],
  stop: ['Stop a server; neither calls nor timers restart it.', async () => (await import('./start-stop.js')).stop, ''],
  reload: ['Clear the failures of a server and restart it.', async () => (await import('./start-stop.js')).reload, ''],
  restart: [
    'Restart the whole Hostler with all its servers.',
    async () => (await import('./down.js')).restart,
    'Restart or end the whole Hostler.',
  ],
  down: ['End the running Hostler and all its servers.', async () => (await import('./down.js')).down, ''],
  login: [
    'Log in to a server that needs a login.',
    async () => (await import('./login.js')).login,
    'Log in to a server, log out, list logins.',
  ],
  logout: ['Revoke and forget the login of a server.', async () => (await import('./logout.js')).logout, ''],
  auth: ['List the logins, or show the login of one server.', async () => (await import('./auth.js')).auth, ''],
  approve: ['Compare changed tools and approve them.', async () => (await import('./approve.js')).approve],
  enable: [
    'Put a server or a tool back into service.',
    async () => (await import('./enable.js')).enable,
    'Put a server or a tool into or out of service.',
  ],
  disable: ['Take a server or a tool out of service.', async () => (await import('./enable.js')).disable, ''],
  trust: ['Show what a hostler.json would run, and confirm it.', async () => (await import('./trust.js')).trust],
  key: ['Add, list and revoke keys of clients and workers.', async () => (await import('./key.js')).key],
  worker: [
    'Serve the tools of a remote Hostler to one stdio client.',
    async () => (await import('./worker.js')).worker,
    'Serve the tools of a remote Hostler to one client.',
  ],
  probe: ['Reach one MCP server, show what it offers, and stop it.', async () => (await import('./probe.js')).probe],
  help: [
    'Show the commands, one command or a topic.',
    async () => (await import('./help.js')).help,
    'Explain a command or topic; JSON shapes; the version.',
  ],
  schema: ['Print the JSON Schema of each --json output.', async () => (await import('./schema.js')).schema, ''],
  version: ['Print the version.', async () => (await import('./version-command.js')).versionCommand, ''],
};
