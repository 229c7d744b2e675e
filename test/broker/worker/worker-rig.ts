/** A worker and a scripted host in this process, on a fake clock. */
import { RemoteTools, type RemoteToolsOptions } from '../../../src/broker/worker/remote-tools.js';
import { isHostError } from '../../../src/kernel/errors.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { seededRandom } from '../../../src/kernel/random.js';
import { MemoryTransport } from '../../fakes/memory-transport.js';
import { ScriptedService } from '../../fakes/scripted-service.js';

export interface RigOptions extends Partial<RemoteToolsOptions> {
  /** Tools as `server/tool`. */
  readonly tools?: ConstructorParameters<typeof ScriptedService>[0];
  readonly prepare?: (broker: MemoryTransport, host: ScriptedService) => void;
}

export interface Rig {
  readonly clock: FakeClock;
  readonly broker: MemoryTransport;
  readonly host: ScriptedService;
  readonly tools: RemoteTools;
  /** Runs all pending work that needs no passage of time. */
  readonly settle: () => Promise<void>;
}

/** Makes a connected rig, unless `prepare` prevents the connection. */
export async function makeRig(options: RigOptions = {}): Promise<Rig> {
  const rig = unconnected(options);
  for (let turns = 0; turns < 5; turns++) await rig.settle();
  return rig;
}

export function unconnected({ tools: names, prepare, ...rest }: RigOptions = {}): Rig {
  const clock = new FakeClock();
  const host = new ScriptedService(names);
  const broker = new MemoryTransport(host);
  prepare?.(broker, host);
  const open = broker.opener({ name: 'w1', epoch: 'e1', role: 'reader' });
  const tools = new RemoteTools({ open, clock, random: seededRandom(7), ...rest });
  const settle = async () => {
    for (let turns = 0; turns < 4; turns++) await clock.advanceAsync(0);
  };
  return { clock, broker, host, tools, settle };
}

/** The outcome as text: the texts of the result, or the code of the error and its `execution`. */
export function outcomeOf(call: Promise<{ json(): unknown }>): Promise<string> {
  return call.then(
    (result) => (result.json() as { content: { text: string }[] }).content.map(({ text }) => text).join(),
    (error: unknown) => {
      if (!isHostError(error)) throw error;
      return [error.code, error.details.execution].filter(Boolean).join(' ');
    },
  );
}

/** The outcome as text; undefined while the call runs. */
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
