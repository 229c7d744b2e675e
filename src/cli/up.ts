/** `hostler up`: its options. Loads the code from one bundled file, or from the compiled files if there is no bundle. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Command, ParsedArgs } from './command.js';
import { runBundle } from './process/compile-cache.js';
import { limitHeap, limitRelay } from './process/heap-flags.js';
import { REAPER_VARIABLE } from './process/subreaper.js';

export const up: Command = {
  name: 'up',
  usage:
    '[--config FILE] [--host ADDRESS] [--port N] [--data-dir DIR] [--auth key|none] [--stdio] [--json] [--show-key]',
  example: 'up --config hostler.json',
  options: {
    'config=': './hostler.json, else that of your configuration folder',
    'host=': 'address to listen on; default 127.0.0.1',
    'port=': 'port to listen on; default 8383; 0 for any free port',
    'data-dir=': 'folder for keys, pins and lists',
    'auth=': 'key (clients need a key) or none (loopback only)',
    stdio: 'serve one client over stdin and stdout',
    json: 'print one line of JSON when Hostler serves',
    'show-key': 'with --json: print the local key on every start',
  },
  positionals: [0, 0],
  async run(args) {
    // A container ends with its PID 1, so a relay in that place could not leave a host behind.
    const isInit = process.pid === 1 || process.env[REAPER_VARIABLE] !== undefined;
    if (!args.has('stdio') || isInit) return serve(args, undefined);
    const { runRelay } = await load<typeof import('./relay/run-relay.js')>(
      args,
      'relay',
      () => import('./relay/run-relay.js'),
    );
    return runRelay(args, (why) => serve(args, why), limitRelay);
  },
};

async function serve(args: ParsedArgs, alone: string | undefined): Promise<number> {
  limitHeap();
  const { runUp } = await load<typeof import('./up/run-up.js')>(args, 'up', () => import('./up/run-up.js'));
  return runUp(args, async () => (await import('../broker/serve-workers.js')).serveWorkers, alone);
}

/** Loads a part from its bundle, or from the compiled files if there is no bundle. */
async function load<Part>(args: ParsedArgs, name: string, fromFiles: () => Promise<Part>): Promise<Part> {
  const bundle = fileURLToPath(new URL(`./${name}.bundle.cjs`, import.meta.url));
  return existsSync(bundle) ? (runBundle(bundle, args.text('data-dir')) as Part) : fromFiles();
}
