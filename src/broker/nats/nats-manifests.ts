/**
 * The newest manifest of each role, kept on the server for every mailbox of that role: workers find it there with no host about.
 * Not here: what is in it (service/), who has which role (nats-host.ts).
 *
 * Invariants: what one worker does costs one look at its own mailbox, and that once in a while; written is what is newest when it
 * is written; what another role had seen is not left for this one.
 */
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { messageBytesMax } from '../ports.js';
import type { NatsConnection } from './nats-connection.js';
import { tooLarge } from './nats-failures.js';
import type { Names } from './nats-names.js';

/** Between two looks at one mailbox. */
const restMs = 1_000;
/** Mailboxes that are written at a time: less than may wait for receipts, as calls go the same way. */
const writtenAtOnce = 8;

export interface ManifestParts {
  readonly names: Names;
  readonly clock: Clock;
  readonly connection: () => Promise<NatsConnection>;
  readonly credentials: () => ReadonlyMap<string, { readonly role: string | undefined }>;
  readonly isClosed: () => boolean;
}

/** One that is under way, or was a moment ago. */
interface Look {
  readonly rested: Promise<void>;
  /** Somebody waits for the next. */
  isWanted: boolean;
}

export class NatsManifests {
  readonly #parts: ManifestParts;
  /** Of roles that have a mailbox. */
  readonly #newest = new Map<string | undefined, Buffer>();
  /** By mailbox. */
  readonly #looks = new Map<string, Look>();

  constructor(parts: ManifestParts) {
    this.#parts = parts;
  }

  /** For every mailbox of the role; with a mailbox, of what is known here already, there alone, if something else is there. */
  async keep(role: string | undefined, body: Buffer, mailbox?: string): Promise<void> {
    if (body.length > messageBytesMax) throw tooLarge('manifest', body.length);
    const isKnown = this.#newest.get(role)?.equals(body) === true;
    this.#newest.set(role, body);
    return isKnown && mailbox !== undefined ? this.#lookAt(mailbox) : this.#putAll(role);
  }

  /** Roles without a mailbox have none any more. */
  forgetUnused(): void {
    const roles = new Set([...this.#parts.credentials().values()].map(({ role }) => role));
    for (const role of this.#newest.keys()) if (!roles.has(role)) this.#newest.delete(role);
  }

  /** That mailbox is new, or has another role than before. */
  async roleChanged(opened: NatsConnection, mailbox: string): Promise<void> {
    const body = this.#newestOf(mailbox);
    if (body !== undefined) return this.#put(opened, mailbox, body);
    const { names } = this.#parts;
    await opened.api(`STREAM.PURGE.${names.manifestStream}`, { filter: names.of(mailbox).manifest });
  }

  #newestOf(mailbox: string): Buffer | undefined {
    const credential = this.#parts.credentials().get(mailbox);
    return credential && this.#newest.get(credential.role);
  }

  async #putAll(role: string | undefined): Promise<void> {
    const opened = await this.#parts.connection();
    const mine = [...this.#parts.credentials()].filter(([, credential]) => credential.role === role);
    for (let at = 0; at < mine.length; at += writtenAtOnce)
      await Promise.all(
        mine.slice(at, at + writtenAtOnce).map(async ([mailbox]) => {
          const body = this.#newestOf(mailbox);
          if (body !== undefined) await this.#put(opened, mailbox, body);
        }),
      );
  }

  /** Of all who ask between two looks the first hears how the next one ended. */
  async #lookAt(mailbox: string): Promise<void> {
    const last = this.#looks.get(mailbox);
    if (last?.isWanted) return;
    if (last !== undefined) {
      last.isWanted = true;
      await last.rested;
    }
    const looking = this.#compare(mailbox);
    const rest = () => sleep(this.#parts.clock, restMs);
    const look: Look = { isWanted: false, rested: looking.then(rest, rest) };
    this.#looks.set(mailbox, look);
    void look.rested.then(() => {
      if (!look.isWanted) this.#looks.delete(mailbox);
    });
    return looking;
  }

  async #compare(mailbox: string): Promise<void> {
    const { names, connection, isClosed } = this.#parts;
    if (isClosed()) return;
    const opened = await connection();
    const kept = await opened.read(names.manifestStream, names.of(mailbox).manifest);
    const body = this.#newestOf(mailbox);
    if (body !== undefined && !kept?.body.equals(body)) await this.#put(opened, mailbox, body);
  }

  async #put(opened: NatsConnection, mailbox: string, body: Buffer): Promise<void> {
    const receipt = await opened.keep(this.#parts.names.of(mailbox).manifest, body);
    if (receipt.kind === 'full')
      throw new HostError(
        'insufficient_storage',
        `the manifest of mailbox '${mailbox}' cannot be kept: ${receipt.why}`,
        { hint: 'raise the bounds of its stream, or make room on the disk of the NATS server' },
      );
  }
}
