/** The hostile servers beside a store of logins, and hosts that use this store. Both end with the test that started them. */
import { onTestFinished } from 'vitest';
import { SecretValues } from '../../src/config/secrets/secret-values.js';
import { secretsEntry } from '../../src/config/secrets/secrets-settings.js';
import { parseServerDefinition } from '../../src/config/server-definition.js';
import { Host } from '../../src/host/host.js';
import { Identity } from '../../src/identity/identity.js';
import { type Clock, systemClock } from '../../src/kernel/clock.js';
import { isHostError } from '../../src/kernel/errors.js';
import { systemRandom } from '../../src/kernel/random.js';
import { createRedactor } from '../../src/kernel/redact.js';
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { LoginRig } from './login-rig.js';

export async function startLoginWorld(
  options: Parameters<typeof startHostile>[0] = {},
): Promise<Hostile & { rig: LoginRig; url: string }> {
  const hostile = await startHostile(options);
  const rig = new LoginRig();
  onTestFinished(async () => {
    rig.end();
    await hostile.close();
  });
  return { ...hostile, rig, url: hostile.rs.url };
}

/** One Hostler on the folder of the rig. `clock`: the clock of the identity only; on a fake clock requests take no time. */
export function hostOn(rig: LoginRig, { clock = systemClock, exec = {} }: { clock?: Clock; exec?: object } = {}) {
  const redactor = createRedactor();
  const secrets = new SecretValues({ clock, redactor, environmentOf: () => ({ PATH: process.env.PATH ?? '' }) });
  secrets.configure(secretsEntry.parse({ exec }).exec);
  const problems: unknown[] = [];
  const identity = new Identity({
    ...{ folder: rig.folder, clock, random: systemRandom, redactor, secrets },
    onProblem: (error) => problems.push(error),
  });
  const host = new Host({ authProvider: (server) => identity.providerFor(server), onProblem: () => {} });
  onTestFinished(async () => {
    await host.close();
    identity.close();
  });
  const call = (server = 'docs', tool = 'read', args: Record<string, unknown> = {}) =>
    host.call(server, tool, args).then(
      () => 'done',
      (error: unknown) => (isHostError(error) ? `${error.code} ${error.details.reason}` : String(error)),
    );
  const provider = (name: string, url: string, auth: object) => {
    const found = identity.providerFor(parseServerDefinition(name, { url, auth }, true));
    if (!found) throw new Error('no provider');
    onTestFinished(found.onChanged(() => {}));
    const context = { kind: 'token', challenge: 'Bearer', signal: new AbortController().signal } as const;
    const recover = () => found.recover(found.current(), { ...context, deadlineAtMs: clock.nowMs() + 900_000 });
    return Object.assign(found, { refusedOnce: recover });
  };
  return { host, identity, call, provider, problems, redactor };
}
