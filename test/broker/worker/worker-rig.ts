/** A worker and a scripted host over an engine within the process, on a clock that moves only when told. */
import { RemoteTools, type RemoteToolsOptions } from '../../../src/broker/worker/remote-tools.js';
import { isHostError } from '../../../src/kernel/errors.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { seededRandom } from '../../../src/kernel/random.js';
import { MemoryBroker, type MemoryBrokerOptions } from '../../fakes/memory-broker.js';
import { ScriptedHost, type ScriptedHostOptions } from '../../fakes/scripted-host.js';

export interface RigOptions extends Partial<RemoteToolsOptions> {
  readonly broker?: MemoryBrokerOptions;
  readonly host?: ScriptedHostOptions;
  readonly role?: string;
}

export interface Rig {
  readonly clock: FakeClock;
  readonly broker: MemoryBroker;
  readonly host: ScriptedHost;
  readonly tools: RemoteTools;
  /** Lets everything happen that needs no time. */
  readonly settle: () => Promise<void>;
  /** Of requests other than questions for the manifest. */
  readonly callSends: () => MemoryBroker['sends'];
}

export const mailbox = 'w1';

/** Connected, unless the options make that impossible. */
export async function makeRig(options: RigOptions = {}): Promise<Rig> {
  const rig = unconnected(options);
  await rig.host.connect();
  await rig.settle();
  return rig;
}

/** The host is not there yet. */
export function unconnected({ broker: engine, host: script, role, ...rest }: RigOptions = {}): Rig {
  const clock = new FakeClock();
  const broker = new MemoryBroker(clock, engine);
  const host = new ScriptedHost(broker.openHost, { ...script, isOlder: rest.compat ?? false });
  const tools = new RemoteTools({
    open: broker.openWorker({ mailbox, role }),
    clock,
    random: seededRandom(7),
    ...rest,
  });
  const settle = () => clock.advanceAsync(0);
  return { clock, broker, host, tools, settle, callSends: () => broker.sends.filter(({ request }) => !isAsk(request)) };
}

const isAsk = ({ body }: { readonly body: Buffer }): boolean => body.includes('"op":"manifest"');

/** How it ended: the first text of its result, or the code of its error and what is known of its execution. */
export function outcomeOf(call: Promise<{ json(): unknown }>): Promise<string> {
  return call.then(
    (result) => (result.json() as { content: { text: string }[] }).content.map(({ text }) => text).join(),
    (error: unknown) => {
      if (!isHostError(error)) throw error;
      return [error.code, error.details.execution].filter(Boolean).join(' ');
    },
  );
}

/** The same, and whether it is over yet. */
export function watched(call: Promise<{ json(): unknown }>): { outcome: string | undefined } {
  const watch: { outcome: string | undefined } = { outcome: undefined };
  outcomeOf(call).then(
    (outcome) => {
      watch.outcome = outcome;
    },
    (error: Error) => {
      watch.outcome = String(error);
    },
  );
  return watch;
}
