/**
 * Keeps what a long-lived command holds of memory near to what it uses. Left to itself V8 widens the space for new objects to
 * twice 16 MiB for the sake of a burst, and lets garbage grow to four times what is in use: a thousand clients that come and
 * go cost more than the rest of the gateway then, and go on costing it when they are gone.
 *
 * Invariants: nothing of it happens before the start is over; code that is kept for the next start is made under the flags
 * which that one begins with, since V8 takes no other. A V8 that does not know a flag goes on without it.
 */
type V8 = typeof import('node:v8');

const MiB = 1024 * 1024;
const lookEveryMs = 1_000;
/** Both halves: wide enough that what a call allocates has gone before it is copied, also with 64 under way. */
const youngBytes = 8 * MiB;

/**
 * Each with V8's own value. Garbage may take half of what is in use: what a thousand abandoned sessions hold then costs one and a
 * half times its size, and collecting it twice as often is not seen in the time of a call.
 */
const flags = {
  garbage: { bounded: '--heap-growing-percent=50', own: '--heap-growing-percent=0' },
  young: { bounded: '--semi-space-growth-factor=1', own: '--semi-space-growth-factor=2' },
} as const;

let v8: V8 | undefined;
const set = new Set<keyof typeof flags>();

/** From now on, or from soon on. */
export function boundHeap(): void {
  const looking = setInterval(async () => {
    v8 ??= await import('node:v8');
    bound('garbage');
    if (youngSize(v8) < youngBytes) return;
    bound('young');
    clearInterval(looking);
  }, lookEveryMs);
  looking.unref();
}

/** Makes something that a process which has just begun can use. */
export function withoutBounds<T>(make: () => T): T {
  for (const name of set) v8?.setFlagsFromString(flags[name].own);
  try {
    return make();
  } finally {
    for (const name of set) v8?.setFlagsFromString(flags[name].bounded);
  }
}

function bound(name: keyof typeof flags): void {
  if (set.has(name)) return;
  v8?.setFlagsFromString(flags[name].bounded);
  set.add(name);
}

const youngSize = ({ getHeapSpaceStatistics }: V8): number =>
  getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space')?.space_size ?? 0;
