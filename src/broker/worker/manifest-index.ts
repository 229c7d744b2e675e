/** A manifest with its tools by name. Immutable: another manifest is another index. */
import type { HostError } from '../../kernel/errors.js';
import type { Manifest, ManifestTool } from '../protocol/reply-body.js';

export class ManifestIndex {
  readonly revision: string;
  readonly tools: readonly ManifestTool[];
  /** Why there are no tools, if the host denies this worker everything. */
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

  /** All tools that match; at most one if the server is named. */
  find(server: string | undefined, tool: string): readonly ManifestTool[] {
    const found = this.#byName.get(tool) ?? [];
    return server === undefined ? found : found.filter((each) => each.server === server).slice(0, 1);
  }
}
