/** Rounds of a store that is killed while it works, over one folder, and what was seen of them. */
import { runStore, startStore } from './store-process.js';

export interface KillReport {
  readonly receipts: number;
  readonly removed: number;
  /** Receipts that are not found, though nobody removed them. */
  readonly lost: number;
  /** Removed, flushed, and there again. */
  readonly revenants: number;
  readonly isOrdered: boolean;
  readonly seqsTwice: number;
  readonly problems: number;
}

/** Each is killed after some more than `lines` lines, at a moment that nobody chose. */
export async function killRounds(folder: string, rounds: number, lines: number): Promise<KillReport> {
  const held = new Map<number, string>();
  const gone = new Set<number>();
  const seqs: number[] = [];
  let [receipts, removed, lost, revenants, problems, isOrdered] = [0, 0, 0, 0, 0, true];
  for (let round = 0; round < rounds; round++) {
    const store = startStore(folder, ['work', 8]);
    await store.reached(lines + Math.floor(Math.random() * lines));
    store.child.kill('SIGKILL');
    const said = await store.ended;
    problems += said.of('P').length + said.of('X').length;
    for (const [seq, id] of said.of('R').map((each) => each.split(' ') as [string, string])) {
      receipts += 1;
      seqs.push(Number(seq));
      held.set(Number(seq), id);
    }
    // Asked for, but not confirmed: it may be there or not.
    for (const seq of said.of('d')) held.delete(Number(seq));
    for (const seq of said.of('D')) gone.add(Number(seq));
    removed += said.of('D').length;

    const found = (await runStore(folder, ['read'])).of('M').map((each) => each.split(' ') as [string, string]);
    const foundIds = new Map(found.map(([seq, id]) => [Number(seq), id]));
    for (const [seq, id] of held) if (foundIds.get(seq) !== id) lost += 1;
    for (const seq of foundIds.keys()) if (gone.has(seq)) revenants += 1;
    isOrdered &&= found.every(([seq], at) => at === 0 || Number(seq) > Number(found[at - 1]?.[0]));
  }
  return { receipts, removed, lost, revenants, isOrdered, seqsTwice: seqs.length - new Set(seqs).size, problems };
}
