/** Sentences about repaired and left out items of a server's lists, for `status`, `doctor` and the log. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { ListMethod } from '../session/lists.js';
import type { ItemFault } from './list-repair.js';

const nouns: Readonly<Record<ListMethod, string>> = {
  'tools/list': 'tool',
  'prompts/list': 'prompt',
  'resources/list': 'resource',
  'resources/templates/list': 'resource template',
};
/** Items that a sentence names. */
const namedMax = 3;
const nameChars = 80;
const fieldsMax = 5;

export function repairNotes(faults: ReadonlyMap<ListMethod, ReadonlyMap<string, ItemFault>>): string[] {
  return [...faults].flatMap(([method, byKey]) => {
    const all = [...byKey];
    const sentence = (found: readonly (readonly [string, ItemFault])[], verb: string): string[] => {
      if (found.length === 0) return [];
      const named = found.slice(0, namedMax).map(([key, fault]) => `${nameText(key)} (${fieldsText(fault)})`);
      const count = `${found.length} ${nouns[method]}${found.length === 1 ? '' : 's'}`;
      return [`${count} ${verb}: ${named.join(', ')}${found.length > namedMax ? ', …' : ''}`];
    };
    return [
      ...sentence(
        all.filter(([, { item }]) => !item),
        'left out of lists',
      ),
      ...sentence(
        all.filter(([, { item }]) => item),
        'repaired in lists',
      ),
    ];
  });
}

/** The faulty members of an item, such as `inputSchema.type`. */
function fieldsText({ fields }: ItemFault): string {
  const shown = fields.slice(0, fieldsMax).map((field) => neutraliseLine(field, nameChars));
  return `${shown.join(', ')}${fields.length > fieldsMax ? ', …' : ''}`;
}

const nameText = (key: string): string => (key === '' ? 'without a name' : neutraliseLine(key, nameChars));
