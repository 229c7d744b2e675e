/** `hostler down|restart`: ends or restarts the running Hostler with all its servers. */
import { setTimeout as wait } from 'node:timers/promises';
import { HostError } from '../kernel/errors.js';
import { type Command, hostOptions, jsonOption } from './command.js';
import { hostDataDir } from './config/running-hosts.js';
import { connectControl, fetchRunningFacts } from './control/control-client.js';
import { controlPath, type RunningFacts } from './control/control-protocol.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText } from './output/print.js';
import { isAlive } from './process/host-address.js';

const pollMs = 50;
/** Longer than running requests and the stop of a server may take. */
const endMsMax = 60_000;

const command = (name: 'down' | 'restart'): Command => ({
  name,
  usage: '[--json]',
  example: name,
  options: { ...jsonOption, ...hostOptions },
  positionals: [0, 0],
  async run(args) {
    const file = controlPath(await hostDataDir(args, 'refuse'));
    const client = await connectControl(file);
    const before = (await client.request(name)) as RunningFacts;
    client.close();
    const after = await nextFacts(file, before);
    const { pid, config = null, dataDir } = before;
    if (args.has('json')) printJson({ pid, config, dataDir, runs: after !== undefined, newPid: after?.pid ?? null });
    else printText(`Hostler (pid ${pid}) of ${config ?? dataDir} ${sentenceOf(name, after)}`);
    return EXIT.done;
  },
});

const sentenceOf = (name: 'down' | 'restart', after: Partial<RunningFacts> | undefined): string => {
  if (name === 'down') return 'has stopped';
  return after ? 'has restarted' : 'has stopped; the next request of a client starts it again';
};

/** Facts of the Hostler that runs after this one; undefined if none does. */
async function nextFacts(file: string, { startedAt, pid }: RunningFacts): Promise<Partial<RunningFacts> | undefined> {
  for (const untilMs = performance.now() + endMsMax; performance.now() < untilMs; await wait(pollMs)) {
    const facts = await fetchRunningFacts(file);
    if (facts === undefined && isAlive(pid)) continue;
    if (facts === undefined || (facts.startedAt !== undefined && facts.startedAt !== startedAt)) return facts;
  }
  throw new HostError('timeout', `Hostler (pid ${pid}) is still stopping`, {
    hint: 'look at the log of that Hostler, or end the process',
  });
}

export const down = command('down');
export const restart = command('restart');
