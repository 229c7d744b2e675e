/**
 * One small shell beside us that outlives us: when our end of its stdin closes, however we died, it takes down the
 * groups of all children still on its list.
 * Not here: children of an earlier run whose watch died too (pid-journal.ts).
 *
 * Invariants: it signals only groups on its list, and none whose number may be another's by now; it never keeps us alive;
 * an empty list means it just leaves. A group is ours while its leader has the start time it was listed with; when the
 * leader has gone, while somebody in it carries the mark of this Hostler; and no more once it was seen empty.
 * The exception is a system without /proc, where a shell can see neither start times nor marks: there every listed
 * number counts as ours until it was seen empty.
 *
 * A child that was being started when we were killed has no number yet: the watch is told of its run before, and finds it
 * by the mark of that run. Without /proc it cannot, so the number must follow the spawn at once; the journal keeps the run that
 * was announced, and the next start reports it. What remains open is the moment between the death of the watch itself and its successor; the
 * journal still knows.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Clock } from '../../kernel/clock.js';
import { RUN_MARKER } from '../environment.js';
import type { GroupLeader } from './process-group.js';

/**
 * The first argument is the id in our marks. Kept to built-ins but for `sleep` and one `grep` at the end, so that it
 * stays small. `look` reads all lines of stat because a process may have a newline in its name, and takes what follows
 * the last parenthesis because it may have those as well.
 */
export const WATCH_SCRIPT = `
set -f
trap '' HUP INT TERM
instance=$1
list=
pending=
while read -r what group start; do
  case $what in
    '?') pending="$pending $group" ;;
    '!') rest=
         for entry in $pending; do
           [ "$entry" = "$group" ] || rest="$rest $entry"
         done
         pending=$rest ;;
    +) list="$list $group:$start" ;;
    -) rest=
       for entry in $list; do
         [ "$entry" = "$group:$start" ] || rest="$rest $entry"
       done
       list=$rest ;;
  esac
done
[ -n "$list$pending" ] || exit 0
look() {
  text=
  [ -r "/proc/$1/stat" ] || return 1
  while IFS= read -r line || [ -n "$line" ]; do text="$text $line"; done 2>/dev/null < "/proc/$1/stat"
  text=\${text##*)}
  set -- $text
  its_group=$3
  its_start=\${20}
}
find_marked() {
  marked=' '
  set +f
  files=$(grep -lsF -e "${RUN_MARKER}=$instance." /proc/[0-9]*/environ 2>/dev/null)
  set -f
  for file in $files; do
    file=\${file%/environ}
    look "\${file#/proc/}" && marked="$marked$its_group "
  done
}
ours() {
  group=\${1%%:*}
  case $group in ''|*[!0-9]*|0|1) return 1 ;; esac
  [ -r /proc/self/stat ] || return 0
  if look "$group"; then
    [ "$its_start" = "\${1##*:}" ]
    return
  fi
  [ -n "$marked" ] || find_marked
  case $marked in *" $group "*) return 0 ;; esac
  return 1
}
each() {
  marked=
  for entry in $list; do
    if ours "$entry"; then
      for signal in "$@"; do kill -s "$signal" -- "-$group" 2>/dev/null; done
    fi
  done
}
forget_empty() {
  rest=
  for entry in $list; do
    if ours "$entry" && kill -s 0 -- "-$group" 2>/dev/null; then rest="$rest $entry"; fi
  done
  list=$rest
}
find_pending() {
  set +f
  for run in $pending; do
    for file in $(grep -lszxF -e "${RUN_MARKER}=$instance.$run" /proc/[0-9]*/environ 2>/dev/null); do
      file=\${file%/environ}
      look "\${file#/proc/}" || continue
      group=$its_group
      look "$group" || its_start=0
      list="$list $group:$its_start"
    done
  done
  set -f
}
# What was being started has its mark only once it is the new program.
if [ -n "$pending" ]; then
  sleep 0.1
  find_pending
fi
each TERM CONT
left=10
while forget_empty; [ $left -gt 0 ] && [ -n "$list" ]; do
  sleep 0.1 || break
  left=$((left - 1))
done
each KILL
`;

/** A watch that dies at once (no /bin/sh, no memory) is tried again this much later, not in a loop. */
const retryMs = 1_000;

export class DeathWatch {
  readonly #clock: Clock;
  readonly #instanceId: string;
  readonly #groups = new Set<string>();
  readonly #expected = new Set<number>();
  #shell: ChildProcess | undefined;
  #startedAtMs = Number.NEGATIVE_INFINITY;
  #cancelRetry: () => void = () => {};
  #closed = false;

  constructor(clock: Clock, instanceId: string) {
    this.#clock = clock;
    this.#instanceId = instanceId;
  }

  /** Undefined while nobody watches. */
  get pid(): number | undefined {
    return this.#shell?.pid;
  }

  /** A child is about to be started; `expected` says that its start is over, either way. */
  expect(run: number): void {
    this.#expected.add(run);
    if (this.#shell) this.#shell.stdin?.write(`? ${run}\n`);
    else this.#start();
  }

  expected(run: number): void {
    if (this.#expected.delete(run)) this.#shell?.stdin?.write(`! ${run}\n`);
  }

  /** Call right after the child was started, before `expected`. */
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
    if (this.#closed) return;
    const waitedMs = this.#clock.nowMs() - this.#startedAtMs;
    if (waitedMs < retryMs) {
      this.#cancelRetry = this.#clock.at(this.#startedAtMs + retryMs, () => this.#start());
      return;
    }
    this.#startedAtMs = this.#clock.nowMs();
    let shell: ChildProcess;
    try {
      shell = spawn('/bin/sh', ['-c', WATCH_SCRIPT, 'hostler-watch', this.#instanceId], {
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
    const lines = [
      ...[...this.#expected].map((run) => `? ${run}\n`),
      ...[...this.#groups].map((entry) => `+ ${entry}\n`),
    ];
    shell.stdin?.write(lines.join(''));
  }
}

const entryOf = ({ pid, startTicks }: GroupLeader) => `${pid} ${startTicks}`;
