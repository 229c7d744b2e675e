/**
 * The files that `${file:PATH}` names in one reading of a configuration.
 * Not here: where their text goes (placeholders.ts), which of them a confirmation covers (cli/trust/config-parts.ts).
 *
 * Invariant: each file is read once, so the text that was confirmed is the text that is filled in.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';

export type FileText = { readonly text: string } | { readonly why: string };

const fileBytesMax = 64 * 1024;

export class PlaceholderFiles {
  readonly #folder: string;
  readonly #texts = new Map<string, FileText>();

  /** `folder`: where relative paths start. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  read(name: string): FileText {
    const file = path.resolve(this.#folder, name);
    const known = this.#texts.get(file);
    if (known) return known;
    const text = readText(file);
    this.#texts.set(file, text);
    return text;
  }
}

function readText(file: string): FileText {
  let descriptor: number | undefined;
  try {
    // Not blocking: the path may name a FIFO that no process writes to.
    descriptor = openSync(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    const facts = fstatSync(descriptor);
    if (!facts.isFile()) return { why: 'is not a file' };
    if (facts.size > fileBytesMax) return { why: 'is larger than 64 KiB' };
    const text = readFileSync(descriptor, 'utf8').slice(0, fileBytesMax);
    // Cut at one newline: a file that was written by hand ends in one, and no secret does.
    return { text: text.replace(/\r?\n$/, '') };
  } catch (error) {
    const { code = 'unreadable' } = error as NodeJS.ErrnoException;
    return { why: `cannot be read (${code})` };
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}
