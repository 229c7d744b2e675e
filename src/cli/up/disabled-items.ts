/**
 * Servers and tools that `hostler disable` took out of service. They are kept in the data directory; the configuration is not
 * changed.
 * Invariants: a disabled tool is neither listed nor called, by any principal. At most `itemsMax` items are kept.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Host } from '../../host/host.js';
import { HostError } from '../../kernel/errors.js';
import { quoted } from '../../kernel/shell-word.js';
import type { Guard } from '../../policy/allowlist.js';

const itemsMax = 10_000;
/** The name of a server contains no slash, so the first slash ends it. */
const itemOf = (server: string, tool: string | undefined): string =>
  tool === undefined ? server : `${server}/${tool}`;

type Guarded = Pick<Host, 'setAllowlist' | 'stop' | 'reload'>;

export class DisabledItems {
  readonly #file: string;
  readonly #host: Guarded;
  #items: ReadonlySet<string>;

  constructor(dataDir: string, host: Guarded) {
    this.#file = path.join(dataDir, 'disabled.json');
    this.#host = host;
    this.#items = readItems(this.#file);
    if (this.#items.size > 0) host.setAllowlist(this.#guard);
  }

  has(server: string, tool?: string): boolean {
    return this.#items.has(itemOf(server, tool));
  }

  /** The disabled tools of a server. */
  toolsOf(server: string): string[] {
    const prefix = itemOf(server, '');
    return [...this.#items].filter((item) => item.startsWith(prefix)).map((item) => item.slice(prefix.length));
  }

  /** Stops a server that is disabled. An enabled server starts with its next call. */
  async set(server: string, tool: string | undefined, isDisabled: boolean): Promise<void> {
    const item = itemOf(server, tool);
    const items = new Set(this.#items);
    if (isDisabled) items.add(item);
    else items.delete(item);
    if (items.size > itemsMax)
      throw new HostError('insufficient_storage', `${itemsMax} tools are disabled already`, {
        ...{ server, limit: itemsMax },
        hint: 'deny them with tools.deny of the server instead',
      });
    writeItems(this.#file, items);
    this.#items = items;
    this.#host.setAllowlist(...(items.size > 0 ? [this.#guard] : []));
    if (tool === undefined) await (isDisabled ? this.#host.stop(server) : this.#host.reload(server));
  }

  readonly #guard: Guard = ({ server, tool }) => {
    const isServer = this.#items.has(server);
    if (!isServer && (tool === undefined || !this.#items.has(itemOf(server, tool)))) return { allow: true };
    const hint = `hostler enable ${quoted(itemOf(server, isServer ? undefined : tool))} puts it back`;
    return { allow: false, reason: 'hostler disable took it out of service', hint };
  };
}

function readItems(file: string): Set<string> {
  try {
    const { disabled } = JSON.parse(readFileSync(file, 'utf8')) as { disabled?: unknown };
    return new Set(
      (Array.isArray(disabled) ? disabled : []).filter((item) => typeof item === 'string').slice(0, itemsMax),
    );
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return new Set();
    // Not starting is better than serving disabled items.
    throw new HostError('invalid_spec', `${file} cannot be read (${code ?? 'it is not JSON'})`, {
      ...{ field: '--data-dir', reason: 'disabled' },
      hint: 'correct the file, or remove it to enable all disabled servers and tools',
    });
  }
}

function writeItems(file: string, items: ReadonlySet<string>): void {
  writeFileSync(`${file}.new`, `${JSON.stringify({ disabled: [...items].sort() }, null, 2)}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}
