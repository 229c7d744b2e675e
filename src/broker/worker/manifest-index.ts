/** A manifest, and its tools by name. Never changed: another manifest is another index. */
import type { HostError } from '../../kernel/errors.js';
import type { Manifest, ManifestTool } from '../messages.js';

export class ManifestIndex {
  readonly revision: string;
  readonly tools: readonly ManifestTool[];
  /** Why there are none, where the host refuses this worker everything. */
  readonly denied: HostError | undefined;
  readonly #byName = new Map<string, ManifestTool[]>();

  constructor({ revision, tools, denied }: Manifest) {
    this.revision = revision;
    this.denied = denied;
    this.tools = Object.freeze([...tools]);
    for (const tool of tools) {
      const same = this.#byName.get(tool.name);
      if (same) same.push(tool);
      else this.#byName.set(tool.name, [tool]);
    }
    Object.freeze(this);
  }

  /** All that may be meant: at most one where the server is named. */
  find(server: string | undefined, tool: string): readonly ManifestTool[] {
    const found = this.#byName.get(tool) ?? [];
    return server === undefined ? found : found.filter((each) => each.server === server).slice(0, 1);
  }
}
