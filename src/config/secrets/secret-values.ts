/**
 * The values of `${file:...}` and `${exec:...}` (references.ts): reads files, runs commands, keeps values in memory.
 * Not here: when a server or a request needs them (session/connector.ts, session/auth/referenced-headers.ts).
 * Invariants: an error names the reference and the field, never a value. A value is known to the redactor before it is returned.
 * A reference is resolved by one operation at a time, and at most four commands run at a time.
 */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import { KeyedMutex } from '../../kernel/keyed-mutex.js';
import { NewestSecrets, type SecretSink } from '../../kernel/newest-secrets.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { invalidSpec } from '../invalid-spec.js';
import { expand, type Reference, referencesIn, referenceText } from './references.js';
import { type CommandResult, runCommand } from './run-command.js';
import { type ExecSource, type SecretsSettings, ttlMsOf } from './secrets-settings.js';

export interface SecretValuesOptions {
  readonly clock: Clock;
  readonly redactor: SecretSink;
  /** Environment of a command: the baseline, and the variables with these names. */
  readonly environmentOf: (names: readonly string[]) => Record<string, string>;
  readonly run?: typeof runCommand;
}

interface Kept {
  readonly value: string;
  readonly untilMs: number;
  readonly redacted: NewestSecrets;
}

const keptMax = 1_000;
const redactedValues = 4;
const commandsMax = 4;
const fileBytesMax = 64 * 1024;
const shownChars = 200;

export class SecretValues {
  readonly #options: SecretValuesOptions;
  #exec: SecretsSettings['exec'] = {};
  readonly #kept = new Map<string, Kept>();
  readonly #resolving = new Map<string, Promise<CommandResult>>();
  readonly #slots = new KeyedMutex();
  #commands = 0;
  #revision = 0;

  constructor(options: SecretValuesOptions) {
    this.#options = options;
  }

  /** A number that changes whenever a value changes. */
  get revision(): number {
    return this.#revision;
  }

  /** Takes the commands of a new configuration. The output of a changed command is not used again, even if the command still runs. */
  configure(exec: SecretsSettings['exec']): void {
    for (const name of Object.keys(this.#exec)) {
      if (isSame(exec[name], this.#exec[name])) continue;
      this.expire({ kind: 'exec', name });
      this.#resolving.delete(referenceText({ kind: 'exec', name }));
    }
    this.#exec = exec;
  }

  /** Resolves all references of a late text. `isFresh`: runs commands even if their output is kept. */
  async resolve(text: string, field: string, { isFresh = false } = {}): Promise<string> {
    const values = new Map<string, string>();
    await Promise.all(
      referencesIn(text).map(async (each) => {
        const result = await this.#value(each, isFresh);
        if ('why' in result) throw unresolved(field, each, result.why);
        values.set(referenceText(each), result.text);
      }),
    );
    return expand(text, (each) => values.get(referenceText(each)) ?? '');
  }

  /** Expands the text with the last known values. Undefined: a reference was not resolved yet. */
  peek(text: string): string | undefined {
    const isKnown = referencesIn(text).every((each) => this.#kept.has(referenceText(each)));
    return isKnown ? expand(text, (each) => this.#kept.get(referenceText(each))?.value ?? '') : undefined;
  }

  /** The next use resolves the reference again. */
  expire(reference: Reference): void {
    const key = referenceText(reference);
    const kept = this.#kept.get(key);
    if (kept) this.#kept.set(key, { ...kept, untilMs: Number.NEGATIVE_INFINITY });
  }

  #value(reference: Reference, isFresh: boolean): Promise<CommandResult> {
    const key = referenceText(reference);
    const kept = this.#kept.get(key);
    if (kept && !isFresh && this.#options.clock.nowMs() < kept.untilMs) return Promise.resolve({ text: kept.value });
    const running = this.#resolving.get(key);
    if (running !== undefined) return running;
    const resolving = this.#resolve(reference).finally(() => {
      if (this.#resolving.get(key) === resolving) this.#resolving.delete(key);
    });
    this.#resolving.set(key, resolving);
    return resolving;
  }

  async #resolve({ kind, name }: Reference): Promise<CommandResult> {
    const source = kind === 'exec' && Object.hasOwn(this.#exec, name) ? this.#exec[name] : undefined;
    if (kind === 'exec' && !source) return { why: 'is not in secrets.exec' };
    const result = source ? await this.#run(source) : await readSecretFile(name);
    if (!('text' in result)) return result;
    // The command was changed while it ran, so only the callers of this run get the value.
    if (source && !isSame(source, this.#exec[name])) this.#options.redactor.know(result.text);
    // The value of a file expires at once, because a file is read for each use.
    else this.#keep(referenceText({ kind, name }), result.text, source ? ttlMsOf(source) : 0);
    return result;
  }

  #run({ argv, env }: ExecSource): Promise<CommandResult> {
    const { clock, environmentOf, run = runCommand } = this.#options;
    const slot = String(this.#commands++ % commandsMax);
    return this.#slots.runExclusive(slot, () => run({ argv, env: environmentOf(env), clock }));
  }

  #keep(key: string, value: string, keptMs: number): void {
    const { clock, redactor } = this.#options;
    const before = this.#kept.get(key);
    const { redacted = new NewestSecrets(redactor, redactedValues) } = before ?? {};
    redacted.add(value);
    const kept = { value, untilMs: clock.nowMs() + keptMs, redacted };
    setBounded(this.#kept, key, kept, keptMax);
    if (before?.value !== value) this.#revision++;
  }
}

const isSame = (a: ExecSource | undefined, b: ExecSource | undefined): boolean =>
  JSON.stringify(a) === JSON.stringify(b);

async function readSecretFile(file: string): Promise<CommandResult> {
  let handle: Awaited<ReturnType<typeof open>> | undefined;
  try {
    // O_NONBLOCK, because the path may name a FIFO without a writer.
    handle = await open(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    const facts = await handle.stat();
    if (!facts.isFile()) return { why: 'is not a file' };
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(fileBytesMax + 1), 0, fileBytesMax + 1, 0);
    if (bytesRead > fileBytesMax) return { why: 'is larger than 64 KiB' };
    // Editors add a newline at the end; it is not part of a secret.
    return { text: buffer.toString('utf8', 0, bytesRead).replace(/\r?\n$/, '') };
  } catch (error) {
    return { why: `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unreadable'})` };
  } finally {
    await handle?.close();
  }
}

function unresolved(field: string, { kind, name }: Reference, why: string): HostError {
  const shown = neutraliseLine(name, shownChars);
  return kind === 'file'
    ? invalidSpec(field, `${shown} ${why}`, 'check that the file exists and that hostler may read it')
    : invalidSpec(
        field,
        `the command '${shown}' ${why}`,
        why.startsWith('is not in') ? `add secrets.exec.${shown}` : `run the command of secrets.exec.${shown} by hand`,
      );
}
