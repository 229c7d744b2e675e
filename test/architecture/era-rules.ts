/**
 * Finds code outside the folders of the eras that names an era, because such code would treat a new era as one of the old ones. A
 * pure function from source texts to sentences about mistakes.
 * Not here: reading the tree (eras.test.ts).
 */
import { isTest, nodesOf, parse, type Sources } from './import-rules.js';

export function eraNameErrors(sources: Sources, names: readonly string[]): string[] {
  return Object.entries(sources).flatMap(([file, text]) => {
    if (file.includes('/eras/') || isTest(file) || !names.some((name) => text.includes(name))) return [];
    const written = [...nodesOf(parse(text))].flatMap((node) => {
      if (node.type === 'Literal') return [node.value];
      return node.type === 'TemplateElement' ? [(node.value as { cooked?: unknown }).cooked] : [];
    });
    const found = new Set(names.filter((name) => written.includes(name)));
    return [...found].map((name) => `${file} names the era '${name}': ask a property of the era instead`);
  });
}
