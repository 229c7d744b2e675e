/**
 * The last manifest in a file, so that a worker can list its tools while the broker is unreachable.
 * Invariants: the file is replaced atomically, and only its owner can read it; its content is checked like a manifest of a host.
 */
import { closeSync, fstatSync, openSync, readFileSync, writeSync } from 'node:fs';
import { newId } from '../../kernel/random.js';
import { replaceFile } from '../../kernel/replace-file.js';
import { checkValue } from '../../wire/json-edit.js';
import { brokerLimits } from '../protocol/limits.js';
import { type Manifest, readManifestBody } from '../protocol/reply-body.js';

/** Undefined if there is no file. Throws if it cannot be used. */
export function readManifestFile(file: string): Manifest | undefined {
  let opened: number;
  try {
    opened = openSync(file, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    if (fstatSync(opened).size > brokerLimits.manifestBytes) throw new Error(`${file} is too large for a manifest`);
    const bytes = readFileSync(opened);
    checkValue(bytes, file);
    return readManifestBody(bytes);
  } finally {
    closeSync(opened);
  }
}

export function writeManifestFile(file: string, body: Buffer): void {
  replaceFile(file, `${file}.${newId()}`, (descriptor) => {
    for (let at = 0; at < body.length; ) at += writeSync(descriptor, body, at);
  });
}
