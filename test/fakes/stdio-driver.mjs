// A small Hostler that can be killed: starts children, prints their pids, and waits.
// Arguments: folder of the compiled sources, state directory, then one of
//   all      every kind of child
//   one      one child that does not exit when its input ends
//   fds      one child that lists its open descriptors
//   boxed    one sandboxed child that lists its descriptors, in a process that keeps its inherited ones
//   alone    stops a server whose grandchild ends only when it is killed, without any other activity
//   emfile   starts children with fewer and fewer free descriptors, and stops one with none (run it under ulimit -n)
import { closeSync, existsSync, openSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const [compiled, stateDir, what] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(path.join(compiled, file)).href);
const { systemClock } = await load('kernel/clock.js');
const { ChildProcesses } = await load('transports/stdio/child-processes.js');
const { openStdio } = await load('transports/stdio/stdio-channel.js');
const { procTable } = await load('transports/stdio/process-table.js');
const { closeInheritedDescriptors } = await load('transports/stdio/inherited-descriptors.js');
if (what !== 'boxed') closeInheritedDescriptors();

const cwd = path.dirname(fileURLToPath(import.meta.url));
const children = new ChildProcesses({ clock: systemClock, stateDir, ambient: process.env });
const stub = path.join(cwd, 'stdio-server.pl');
const deps = { clock: systemClock, cleanText: (text) => text, children };

/** Resolves with the pid when the child has printed its first line. */
async function start(spec) {
  const channel = await openStdio({ server: 'stub', command: 'perl', cwd, ...spec }, deps);
  return new Promise((resolve, reject) => {
    channel.start({
      message: (envelope) => resolve({ pid: channel.describe().pid, said: envelope.payload()?.toString() }),
      failed: () => {},
      closed: reject,
    });
  });
}

if (what === 'one') {
  await start({ args: [stub, '--ignore-eof'] });
} else if (what === 'fds') {
  const script =
    '$| = 1; my @f = grep { -e "/proc/self/fd/$_" } 0..1023; print qq({"jsonrpc":"2.0","method":"fds","params":"@f"}\n); <STDIN>';
  const { said } = await start({ args: ['-e', script] });
  await children.closeAll();
  process.stdout.write(`${said}\n`);
} else if (what === 'boxed') {
  const script =
    '$| = 1; my @f = map { readlink("/proc/self/fd/$_") =~ s/\\d+//gr } grep { -e "/proc/self/fd/$_" } 0..1023; print qq({"jsonrpc":"2.0","method":"fds","params":"@f"}\n); <STDIN>';
  const { said } = await start({ args: ['-e', script], sandbox: 'standard' });
  await children.closeAll();
  process.stdout.write(`${said}\n`);
} else if (what === 'alone') {
  const stopPace = { eofMs: 500, termMs: 600, settleMs: 20, verifyMs: 2_000 };
  const args = [stub, '--ignore-term', '--grandchild', 'plain'];
  const channel = await openStdio({ server: 'stub', command: 'perl', cwd, args, stopPace }, deps);
  channel.start({ message: () => {}, failed: () => {}, closed: () => {} });
  await channel.close();
  process.stdout.write(`${channel.describe().stop.rung}\n`);
} else if (what === 'emfile') {
  const taken = [];
  const takeAll = () => {
    try {
      for (;;) taken.push(openSync('/dev/null'));
    } catch {
      // No descriptor is left, as intended.
    }
  };
  const giveBack = (count = taken.length) => {
    for (const descriptor of taken.splice(0, count)) closeSync(descriptor);
  };
  // The leader exits when its input ends, but the grandchild does not. It is stopped only if the lookup finds it.
  const args = [stub, '--grandchild', 'plain'];
  const stopPace = { eofMs: 500, termMs: 50, settleMs: 20, verifyMs: 200 };
  const open = () => openStdio({ server: 'stub', command: '/usr/bin/perl', cwd, args, stopPace }, deps);
  await open().then((channel) => channel.close());
  const outcomes = [];
  for (let i = 0; i < 24; i++) {
    takeAll();
    giveBack(i >> 1);
    const outcome = await open().catch((error) => error);
    if (outcome instanceof Error) {
      outcomes.push(`${outcome.code} ${outcome.details?.reason}`);
    } else {
      outcomes.push('started');
      // Half of the rounds free the descriptors again; the others take each free descriptor at once.
      if (i % 2 === 0) giveBack();
      const greed = i % 2 === 0 ? undefined : setInterval(takeAll, 1);
      await outcome.close();
      clearInterval(greed);
    }
    giveBack();
  }
  // Checked before the exit, because the death watch would then end processes that the stop had missed.
  const table = procTable(process.env.TEST_PROC_FOLDER);
  const left = table.living().filter(({ pid }) => table.mark(pid)?.startsWith(`${children.instanceId}.`)).length;
  process.stdout.write(`${JSON.stringify({ outcomes, left })}\n`);
  await children.closeAll();
} else {
  const ready = ['--say', '{"jsonrpc":"2.0","method":"ready"}\\n'];
  const kinds = {
    obedient: [],
    ignoresEof: ['--ignore-eof'],
    ignoresTerm: ['--ignore-eof', '--ignore-term'],
    withGrandchild: ['--ignore-eof', '--grandchild', 'plain'],
    stopped: ['--ignore-eof'],
  };
  const pids = {};
  for (const [kind, flags] of Object.entries(kinds))
    pids[kind] = (await start({ args: [stub, ...flags, ...ready] })).pid;
  // The sandbox needs /proc.
  if (existsSync('/proc/self/stat'))
    pids.sandboxed = (
      await start({ args: [stub, '--ignore-eof', '--grandchild', 'daemon', ...ready], sandbox: 'standard' })
    ).pid;
  process.kill(pids.stopped, 'SIGSTOP');
  let { watchPid } = children;
  process.stdout.write(`${JSON.stringify({ pids, instanceId: children.instanceId, watchPid })}\n`);
  // Reported in a later turn, when a new watch has received its list.
  setInterval(() => {
    if (children.watchPid === watchPid || children.watchPid === undefined) return;
    watchPid = children.watchPid;
    process.stdout.write(`${JSON.stringify({ watchPid })}\n`);
  }, 5);
}
