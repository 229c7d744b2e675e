/** The resource templates that are not routed, by server, for the status of the servers: put together once per view. */
import type { UnroutedTemplates } from '../../host/status.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { View } from './view.js';

const namedMax = 2_000;
const templateChars = 200;

export class UnroutedNotes {
  readonly #viewNow: () => View;
  #view: View | undefined;
  #byServer: ReadonlyMap<string, UnroutedTemplates> = new Map();

  constructor(viewNow: () => View) {
    this.#viewNow = viewNow;
  }

  of(server: string): UnroutedTemplates | undefined {
    const view = this.#viewNow();
    if (view !== this.#view) {
      this.#byServer = notesOf(view);
      this.#view = view;
    }
    return this.#byServer.get(server);
  }
}

function notesOf(view: View): Map<string, UnroutedTemplates> {
  const notes = new Map<string, { count: number; templates: { template: string; reason: string }[] }>();
  for (const { server, template, reason } of view.unroutedTemplates()) {
    const note = notes.get(server) ?? { count: 0, templates: [] };
    notes.set(server, note);
    note.count++;
    // Text of a server: bounded, and harmless on a terminal.
    if (note.templates.length < namedMax)
      note.templates.push({ template: neutraliseLine(template, templateChars), reason });
  }
  return notes;
}
