/**
 * A small shell process that outlives Hostler: when our end of its stdin closes, however we died, it ends the groups of all children
 * on its list.
 * Not here: children of an earlier run whose death watch died too (pid-journal.ts).
 *
 * Invariants: it signals only groups on its list, and none whose number may belong to another process; it never keeps Hostler
 * alive; with an empty list it just exits. A group is ours while its leader has the listed start time; after the leader's exit,
 * while a member carries the mark of this Hostler; and no more once it was seen empty. Without /proc a shell can read neither start
 * times nor marks: there every listed number counts as ours until it was seen empty.
 *
 * A child that is being started when Hostler is killed has no pid yet: its run is announced before, and the shell finds it by the
 * mark of that run. Without /proc it cannot, so the pid must follow the spawn at once; the journal records the announced run, and the
 * next start reports it. Between the death of the shell and its successor only the journal knows the children.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Clock } from '../../kernel/clock.js';
import { RUN_MARKER } from '../environment.js';
import type { GroupLeader } from './process-group.js';

/**
 * The first argument is the instance id in our marks. Uses only built-ins but for `sleep` and one `grep` at the end, so that the
 * process stays small. `look` reads all lines of stat, because a process name may contain a newline, and takes the text after the
 * last parenthesis, because it may contain parentheses too.
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
# A process that is being started has its mark only after exec.
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

/** Delay before a shell that died at once (no /bin/sh, no memory) is started again. */
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

  /** Undefined while no shell runs. */
  get pid(): number | undefined {
    return this.#shell?.pid;
  }

  /** A child is about to be started; `expected` must follow when it has started or failed. */
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
    // A write to a pipe with room is complete when `write` returns, so no bytes stay in our own buffers.
    if (this.#shell) this.#shell.stdin?.write(`+ ${entryOf(leader)}\n`);
    else this.#start();
  }

  remove(leader: GroupLeader): void {
    if (this.#groups.delete(entryOf(leader))) this.#shell?.stdin?.write(`- ${entryOf(leader)}\n`);
  }

  /** The shell ends children that are still listed. Resolves when the shell has exited. */
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
    if (this.#clock.nowMs() - this.#startedAtMs < retryMs) return this.#retry();
    this.#startedAtMs = this.#clock.nowMs();
    let shell: ChildProcess;
    try {
      shell = spawn('/bin/sh', ['-c', WATCH_SCRIPT, 'hostler-watch', this.#instanceId], {
        // A session of its own: an interrupt from our terminal must not reach it.
        detached: true,
        stdio: ['pipe', 'ignore', 'ignore'],
        cwd: '/',
        env: { PATH: '/usr/bin:/bin' },
      });
    } catch {
      return this.#retry();
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

  #retry(): void {
    this.#cancelRetry = this.#clock.at(this.#startedAtMs + retryMs, () => this.#start());
  }
}

const entryOf = ({ pid, startTicks }: GroupLeader) => `${pid} ${startTicks}`;
