/** Prints what `hostler up` shows when it serves: one line of JSON with `--json`, and the first screen or one line of text. */
import type { Gateway } from '../../gateway/gateway.js';
import type { Host } from '../../host/host.js';
import { firstLine, firstLines, firstScreen } from '../output/first-screen.js';
import { isRedrawn } from '../output/live-block.js';
import { printJson, printLines } from '../output/print.js';
import { screenOf } from '../output/styled.js';
import { version } from '../version.js';
import type { UpOptions } from './up-options.js';
import type { UpScreen } from './up-screen.js';

interface Serving {
  readonly host: Host;
  readonly gateway: Gateway;
  /** Where workers connect. */
  readonly broker: string | undefined;
  /** Gets the line of text if stderr is not a terminal. */
  readonly write: (text: string) => void;
  readonly screen: UpScreen;
}

export function announce(options: UpOptions, { host, gateway, broker, write, screen }: Serving): void {
  const { isJson, isStdio, showsKey, config, dataDir } = options;
  const { url, key, isNewKey, keyFile } = gateway;
  // The output of later starts, and stderr with --stdio, often go to log files, which must not contain the key.
  const isKeyShown = showsKey || (isNewKey && !isStdio);
  const ready = {
    ...{ ready: true, url: url ?? null, key: isKeyShown ? (key ?? null) : null, pid: process.pid, dataDir },
    ...(broker === undefined ? {} : { broker }),
  };
  if (isJson && isStdio) process.stderr.write(`${JSON.stringify(ready)}\n`);
  else if (isJson) printJson(ready);
  const shown = key === undefined || keyFile === undefined ? undefined : { text: key, isNew: isNewKey, file: keyFile };
  const facts = { version, url, config, dataDir, key: shown };
  if (!process.stderr.isTTY) return write(`${firstLine({ ...facts, servers: host.names().length })}\n`);
  const all = { ...facts, rows: host.status(), screen: screenOf(process.stderr) };
  const isLive = !isStdio && process.stdout.isTTY && isRedrawn(process.stderr);
  printLines(['', ...(isLive ? firstLines(all) : firstScreen(all)), ''], process.stderr);
  if (isLive) screen.begin(() => host.status());
}
