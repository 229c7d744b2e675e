/**
 * Who is next when several senders wait: each sender in turn, and within one by number, lowest first.
 * Not here: how many may wait (postbox.ts), and when something that was given back waits again (mailbox.ts).
 *
 * Invariant: a sender without anything waiting is not remembered; what comes back stands where its number says.
 */
export interface Numbered {
  readonly seq: number;
}

/** Taken from the front nearly always; what was taken is cut off in pieces, not one by one. */
class Line<Entry extends Numbered> {
  #entries: Entry[] = [];
  #head = 0;

  get first(): Entry | undefined {
    return this.#entries[this.#head];
  }

  add(entry: Entry): void {
    const entries = this.#entries;
    const last = entries.at(-1);
    if (this.first === undefined || last === undefined || last.seq < entry.seq) {
      entries.push(entry);
    } else if (entry.seq < (this.first as Entry).seq && this.#head > 0) {
      entries[--this.#head] = entry;
    } else {
      let at = this.#head;
      while (at < entries.length && (entries[at] as Entry).seq < entry.seq) at++;
      entries.splice(at, 0, entry);
    }
  }

  remove(entry: Entry): boolean {
    if (this.first === entry) {
      if (++this.#head > cutAfter) {
        this.#entries = this.#entries.slice(this.#head);
        this.#head = 0;
      }
      return true;
    }
    const at = this.#entries.indexOf(entry, this.#head);
    if (at < 0) return false;
    this.#entries.splice(at, 1);
    return true;
  }
}

const cutAfter = 1_024;

export class FairLines<Entry extends Numbered> {
  /** The next sender first. */
  readonly #lines = new Map<string, Line<Entry>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(sender: string, entry: Entry): void {
    let line = this.#lines.get(sender);
    if (!line) {
      line = new Line();
      this.#lines.set(sender, line);
    }
    line.add(entry);
    this.#size++;
  }

  /** The same one until it is taken. Who is passed over keeps its place in the round. */
  peek(isPassedOver: (sender: string) => boolean = () => false): Entry | undefined {
    for (const [sender, line] of this.#lines) if (!isPassedOver(sender)) return line.first;
    return undefined;
  }

  /** False when it was not waiting. A sender that is served goes to the end of the round. */
  take(sender: string, entry: Entry): boolean {
    const line = this.#lines.get(sender);
    if (!line?.remove(entry)) return false;
    this.#size--;
    this.#lines.delete(sender);
    if (line.first !== undefined) this.#lines.set(sender, line);
    return true;
  }
}
