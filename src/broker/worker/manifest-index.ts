/** A manifest, and its tools by name. Never changed: another manifest is another index. */
import type { Manifest, ManifestTool } from '../messages.js';

export class ManifestIndex {
  readonly revision: string;
  readonly tools: readonly ManifestTool[];
  readonly #byName = new Map<string, ManifestTool[]>();

  constructor({ revision, tools }: Manifest) {
    this.revision = revision;
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
