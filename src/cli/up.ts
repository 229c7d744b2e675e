/** `hostler up`: its options. Loads the code from one bundled file, or from the compiled files if there is no bundle. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import type { Command } from './command.js';
import { useCompileCache } from './process/compile-cache.js';
import { limitHeap } from './process/heap-flags.js';

export const up: Command = {
  name: 'up',
  usage:
    '[--config FILE] [--host ADDRESS] [--port N] [--data-dir DIR] [--auth key|none] [--stdio] [--json] [--show-key]',
  example: 'up --config hostler.json',
  options: {
    'config=': './hostler.json, else that of your configuration folder',
    'host=': 'address to listen on, 127.0.0.1',
    'port=': 'port to listen on, 8383; 0 for any',
    'data-dir=': 'folder for keys, pins and lists',
    'auth=': 'key (clients need a key) or none (loopback only)',
    stdio: 'serve one client over stdin and stdout',
    json: 'print one line of JSON when it serves',
    'show-key': 'with --json: print the local key on every start',
  },
  positionals: [0, 0],
  async run(args) {
    const { runUp } = await load(args.text('data-dir'));
    limitHeap();
    return runUp(args, async () => (await import('../broker/serve-workers.js')).serveWorkers);
  },
};

async function load(dataDir: string | undefined): Promise<typeof import('./up/run-up.js')> {
  const bundle = fileURLToPath(new URL('./up.bundle.cjs', import.meta.url));
  if (!existsSync(bundle)) return import('./up/run-up.js');
  useCompileCache(dataDir);
  return createRequire(bundle)(bundle) as typeof import('./up/run-up.js');
}
