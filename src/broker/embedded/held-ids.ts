/** Which messages of whom a mailbox holds: to know one that comes again, and how much of the mailbox is whose. */
import type { Filling } from './mailbox-room.js';

interface Share {
  /** By kind and id, how large it is. */
  readonly held: Map<string, number>;
  bytes: number;
}

export class HeldIds {
  readonly #bySender = new Map<string, Share>();

  has(sender: string, kind: string, id: string): boolean {
    return this.#bySender.get(sender)?.held.has(`${kind} ${id}`) ?? false;
  }

  shareOf(sender: string): Filling {
    const share = this.#bySender.get(sender);
    return { count: share?.held.size ?? 0, bytes: share?.bytes ?? 0 };
  }

  /** Nothing when it is there already. */
  add(sender: string, kind: string, id: string, bytes: number): void {
    const share = this.#bySender.get(sender) ?? { held: new Map<string, number>(), bytes: 0 };
    const name = `${kind} ${id}`;
    if (share.held.has(name)) return;
    share.held.set(name, bytes);
    share.bytes += bytes;
    this.#bySender.set(sender, share);
  }

  delete(sender: string, kind: string, id: string): void {
    const share = this.#bySender.get(sender);
    const name = `${kind} ${id}`;
    const bytes = share?.held.get(name);
    if (!share || bytes === undefined) return;
    share.held.delete(name);
    share.bytes -= bytes;
    if (share.held.size === 0) this.#bySender.delete(sender);
  }

  clear(): void {
    this.#bySender.clear();
  }
}
