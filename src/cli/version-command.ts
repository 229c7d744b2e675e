/** `hostler version`: the version of this program, and of the Hostler that runs. */
import { type Command, hostOptions, jsonOption } from './command.js';
import type { RunningFacts } from './control/control-protocol.js';
import { withControlClient } from './control/with-control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText } from './output/print.js';
import { version } from './version.js';

export const versionCommand: Command = {
  name: 'version',
  usage: '[--json]',
  example: 'version',
  options: { ...jsonOption, ...hostOptions },
  positionals: [0, 0],
  async run(args) {
    const running = await withControlClient(args, 'ignore', (client) => client.request('version')).catch(
      () => undefined,
    );
    const { version: other = null, pid } = (running ?? {}) as Partial<RunningFacts>;
    const { platform, arch, versions } = process;
    if (args.has('json')) printJson({ version, node: versions.node, platform, arch, running: other });
    else {
      const runs = other === null ? 'none is running' : `running: ${other} (pid ${pid})`;
      printText(`hostler ${version}, node ${versions.node}, ${platform}-${arch}; ${runs}`);
    }
    return EXIT.done;
  },
};
