/**
 * A small shell process that outlives Hostler. When Hostler dies, the stdin of the shell closes, and the shell ends the groups of all
 * listed children. Not here: cleanup if the death watch was killed too (reaper.ts). Invariants: the shell signals only listed groups, and
 * never a reused group number. It never keeps Hostler alive. With an empty list it exits. A group belongs to this Hostler while its leader
 * has the listed start time. After the exit of the leader, a member must have the run marker. A group seen empty is dropped. Without /proc
 * a shell can read neither start times nor markers. Then every listed group is taken to belong to this Hostler until it was seen empty. A
 * child has no pid during its spawn, so its run is recorded before the spawn. The shell finds the child by the marker of that run. Without
 * /proc it cannot; then the recorded run stays in the journal, and the next start reports it. Between the death of the shell and the start
 * of its successor, only the journal lists the children.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Clock } from '../../kernel/clock.js';
import { RUN_MARKER } from '../environment.js';
import type { GroupLeader } from './process-group.js';

/**
 * The first argument is the instance id. The script uses only built-ins except `sleep` and `grep`, so the process stays small.
 * `look` takes the text after the last parenthesis of stat, because a process name may contain newlines and parentheses.
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

/** Delay before a shell that exited at once (no /bin/sh, no memory) is started again. */
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

  get pid(): number | undefined {
    return this.#shell?.pid;
  }

  /** Announces a child before its spawn. `stopExpecting` must follow after the spawn succeeded or failed. */
  expect(run: number): void {
    this.#expected.add(run);
    if (this.#shell) this.#shell.stdin?.write(`? ${run}\n`);
    else this.#start();
  }

  stopExpecting(run: number): void {
    if (this.#expected.delete(run)) this.#shell?.stdin?.write(`! ${run}\n`);
  }

  /** Call right after the spawn, before `stopExpecting`. */
  add(leader: GroupLeader): void {
    this.#groups.add(entryOf(leader));
    // A write to a pipe with room is complete when `write` returns, so no bytes stay in a buffer of this process.
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
        // New session: an interrupt from the terminal of Hostler must not reach the shell.
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
