/** Which messages of whom a mailbox holds: to know one that comes again, and how much of the mailbox is whose. */
export class HeldIds {
  readonly #bySender = new Map<string, Set<string>>();

  has(sender: string, kind: string, id: string): boolean {
    return this.#bySender.get(sender)?.has(`${kind} ${id}`) ?? false;
  }

  countOf(sender: string): number {
    return this.#bySender.get(sender)?.size ?? 0;
  }

  add(sender: string, kind: string, id: string): void {
    const held = this.#bySender.get(sender);
    if (held) held.add(`${kind} ${id}`);
    else this.#bySender.set(sender, new Set([`${kind} ${id}`]));
  }

  delete(sender: string, kind: string, id: string): void {
    const held = this.#bySender.get(sender);
    if (held?.delete(`${kind} ${id}`) && held.size === 0) this.#bySender.delete(sender);
  }

  clear(): void {
    this.#bySender.clear();
  }
}
