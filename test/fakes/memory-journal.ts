/** A journal of calls within one process. `restart` is what a new process would find; `refuseNext` is a disk that fails. */
import type { CallClaim, CallJournal, Claimed } from '../../src/broker/ports.js';
import type { HostError } from '../../src/kernel/errors.js';

interface Entry {
  readonly claim: CallClaim;
  boot: number;
  reply: Buffer | undefined;
}

export class MemoryJournal implements CallJournal {
  readonly #entries = new Map<string, Entry>();
  #boot = 1;
  /** In order: `claim` and `finish`, each with its key. */
  readonly asked: string[] = [];
  refuseNextClaim: HostError | undefined;
  refuseNextFinish: HostError | undefined;

  restart(): void {
    this.#boot++;
  }

  async claim(claim: CallClaim): Promise<Claimed> {
    this.asked.push(`claim ${claim.key}`);
    const refused = this.refuseNextClaim;
    this.refuseNextClaim = undefined;
    if (refused) throw refused;
    const key = `${claim.mailbox}/${claim.key}`;
    const entry = this.#entries.get(key);
    if (!entry) {
      this.#entries.set(key, { claim, boot: this.#boot, reply: undefined });
      return { kind: 'mine' };
    }
    if (entry.claim.hash !== claim.hash) return { kind: 'conflict' };
    if (entry.reply) return { kind: 'done', reply: entry.reply };
    if (entry.boot === this.#boot) return { kind: 'running' };
    if (!claim.isRepeatable) return { kind: 'lost' };
    entry.boot = this.#boot;
    return { kind: 'mine' };
  }

  async find(mailbox: string, key: string) {
    const entry = this.#entries.get(`${mailbox}/${key}`);
    if (!entry) return undefined;
    if (entry.reply) return { kind: 'done', reply: entry.reply } as const;
    return { kind: entry.boot === this.#boot ? 'running' : 'lost' } as const;
  }

  async finish(mailbox: string, key: string, reply: Buffer): Promise<void> {
    this.asked.push(`finish ${key}`);
    const refused = this.refuseNextFinish;
    this.refuseNextFinish = undefined;
    if (refused) throw refused;
    const entry = this.#entries.get(`${mailbox}/${key}`);
    if (entry) entry.reply = reply;
  }
}
