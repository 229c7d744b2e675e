/**
 * One small shell beside us that outlives us: when our end of its stdin closes, however we died, it takes down the
 * groups of all children still on its list.
 * Not here: children of an earlier run whose watch died too (pid-journal.ts).
 *
 * Invariants: it signals only groups on its list, and none whose leader's pid now belongs to another process; it never
 * keeps us alive; an empty list means it just leaves.
 *
 * What remains open: a child started and not yet written down when we are killed, which is the time between the
 * system's fork and the write in `add` right after it, about a millisecond; and the moment between the death of the
 * watch itself and its successor. Such a child still loses its stdin with us, and the journal may know it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Clock } from '../../kernel/clock.js';
import type { GroupLeader } from './process-group.js';

/**
 * Kept to built-ins but for `sleep`, so that it stays small. `ticks` reads all lines of stat because a process may have
 * a newline in its name, and takes what follows the last parenthesis because it may have those as well.
 */
export const WATCH_SCRIPT = `
set -f
trap '' HUP INT TERM
list=
while read -r what group start; do
  case $what in
    +) list="$list $group:$start" ;;
    -) rest=
       for entry in $list; do
         [ "$entry" = "$group:$start" ] || rest="$rest $entry"
       done
       list=$rest ;;
  esac
done
[ -n "$list" ] || exit 0
ticks() {
  text=
  [ -r "/proc/$1/stat" ] || return 1
  while IFS= read -r line || [ -n "$line" ]; do text="$text $line"; done 2>/dev/null < "/proc/$1/stat"
  text=\${text##*)}
  set -- $text
  start_now=\${20}
}
ours() {
  group=\${1%%:*}
  case $group in ''|*[!0-9]*|0|1) return 1 ;; esac
  ticks "$group" || return 0
  [ "$start_now" = "\${1##*:}" ]
}
each() {
  for entry in $list; do
    if ours "$entry"; then
      for signal in "$@"; do kill -s "$signal" -- "-$group" 2>/dev/null; done
    fi
  done
}
alive() {
  for entry in $list; do
    if ours "$entry" && kill -s 0 -- "-$group" 2>/dev/null; then return 0; fi
  done
  return 1
}
each TERM CONT
left=10
while [ $left -gt 0 ] && alive; do
  sleep 0.1 || break
  left=$((left - 1))
done
each KILL
`;

/** A watch that dies at once (no /bin/sh, no memory) is tried again this much later, not in a loop. */
const retryMs = 1_000;

export class DeathWatch {
  readonly #clock: Clock;
  readonly #groups = new Set<string>();
  #shell: ChildProcess | undefined;
  #startedAtMs = Number.NEGATIVE_INFINITY;
  #cancelRetry: () => void = () => {};
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Undefined while nobody watches. */
  get pid(): number | undefined {
    return this.#shell?.pid;
  }

  /** Call right after the child was started: until then our death would leave it behind. */
  add(leader: GroupLeader): void {
    this.#groups.add(entryOf(leader));
    // A pipe that is not full is written before `write` returns, so nothing is left in our own buffers.
    if (this.#shell) this.#shell.stdin?.write(`+ ${entryOf(leader)}\n`);
    else this.#start();
  }

  remove(leader: GroupLeader): void {
    if (this.#groups.delete(entryOf(leader))) this.#shell?.stdin?.write(`- ${entryOf(leader)}\n`);
  }

  /** Children still listed are taken down by the shell as if we had died. Resolves when it has gone. */
  close(): Promise<void> {
    this.#closed = true;
    this.#cancelRetry();
    const shell = this.#shell;
    if (!shell) return Promise.resolve();
    return new Promise((resolve) => {
      shell.once('exit', () => resolve());
      shell.once('error', () => resolve());
      shell.ref();
      shell.stdin?.end();
    });
  }

  #start(): void {
    this.#cancelRetry();
    if (this.#closed || process.platform === 'win32') return;
    const waitedMs = this.#clock.nowMs() - this.#startedAtMs;
    if (waitedMs < retryMs) {
      this.#cancelRetry = this.#clock.at(this.#startedAtMs + retryMs, () => this.#start());
      return;
    }
    this.#startedAtMs = this.#clock.nowMs();
    let shell: ChildProcess;
    try {
      shell = spawn('/bin/sh', ['-c', WATCH_SCRIPT, 'hostler-watch'], {
        // A session of its own: what interrupts us from a terminal must not reach it.
        detached: true,
        stdio: ['pipe', 'ignore', 'ignore'],
        cwd: '/',
        env: { PATH: '/usr/bin:/bin' },
      });
    } catch {
      this.#cancelRetry = this.#clock.at(this.#startedAtMs + retryMs, () => this.#start());
      return;
    }
    this.#shell = shell;
    shell.stdin?.on('error', () => {});
    const gone = () => {
      if (this.#shell !== shell) return;
      this.#shell = undefined;
      if (this.#groups.size > 0) this.#start();
    };
    shell.once('error', gone);
    shell.once('exit', gone);
    shell.unref();
    (shell.stdin as unknown as { unref?: () => void } | null)?.unref?.();
    shell.stdin?.write([...this.#groups].map((entry) => `+ ${entry}\n`).join(''));
  }
}

const entryOf = ({ pid, startTicks }: GroupLeader) => `${pid} ${startTicks}`;
