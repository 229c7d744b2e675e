/**
 * The certificate files of a listener: reads and checks them, and notices when they are replaced.
 * Invariants: an error names the setting and the file. Files that do not belong together, as during a replacement, change nothing.
 */
import { readFileSync, statSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';

/** Paths of PEM files. */
export interface TlsPaths {
  readonly cert: string;
  readonly key: string;
}

export interface TlsContext {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly minVersion: 'TLSv1.2';
}

const lookMs = 5_000;

/** `field`: the setting that has the paths. */
export function readTls({ cert, key }: TlsPaths, field = 'listen.tls'): TlsContext {
  const context: TlsContext = {
    cert: read(`${field}.cert`, cert),
    key: read(`${field}.key`, key),
    minVersion: 'TLSv1.2',
  };
  try {
    createSecureContext({ ...context });
  } catch (cause) {
    throw unusable(field, `${cert} and ${key} do not belong together, or are not PEM`, cause);
  }
  return context;
}

/** Calls `apply` with the new files after they were replaced. A link with a new target counts as replaced. */
export function watchTls(
  paths: TlsPaths,
  clock: Clock,
  apply: (context: TlsContext) => void,
  onProblem: (error: unknown) => void,
  field = 'listen.tls',
): Cancel {
  let seen = stampOf(paths);
  let cancel: Cancel = () => {};
  const look = () => {
    cancel = clock.at(clock.nowMs() + lookMs, look);
    const now = stampOf(paths);
    if (now === seen) return;
    seen = now;
    try {
      apply(readTls(paths, field));
    } catch (error) {
      onProblem(error);
    }
  };
  cancel = clock.at(clock.nowMs() + lookMs, look);
  return () => cancel();
}

function read(field: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const { code = 'unreadable' } = cause as NodeJS.ErrnoException;
    throw unusable(field, `${file} cannot be read (${code})`, cause);
  }
}

function stampOf({ cert, key }: TlsPaths): string {
  return [cert, key]
    .map((file) => {
      const { ino, mtimeMs, size } = statSync(file, { throwIfNoEntry: false }) ?? {};
      return `${ino} ${mtimeMs} ${size}`;
    })
    .join(';');
}

const unusable = (field: string, what: string, cause: unknown): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, {
    field,
    reason: 'tls',
    execution: 'not_executed',
    hint: 'give the PEM files of a certificate and of its key, and let Hostler read them',
    cause,
  });
