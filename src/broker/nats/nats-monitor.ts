/**
 * Whether a NATS server syncs every write. It tells clients nothing of that; its monitoring port does, from 2.10 on.
 *
 * Invariant: true only when the very server we are connected to says so.
 */
import { HostError } from '../../kernel/errors.js';

interface Varz {
  readonly server_id?: unknown;
  readonly jetstream?: { readonly config?: { readonly sync_always?: unknown } };
}

const answerMs = 5_000;

export async function syncsEveryWrite(monitorUrl: string, serverId: string): Promise<boolean> {
  let varz: Varz;
  try {
    const response = await fetch(new URL('/varz', monitorUrl), { signal: AbortSignal.timeout(answerMs) });
    varz = (await response.json()) as Varz;
  } catch (cause) {
    throw new HostError('connect_failed', 'the monitoring port of the NATS server does not answer', {
      execution: 'not_executed',
      hint: 'look at http_port in its configuration, and at broker.monitor in ours',
      cause,
    });
  }
  if (varz.server_id !== serverId)
    throw new HostError('invalid_spec', 'monitorUrl: belongs to another NATS server than the one we are connected to', {
      field: 'monitorUrl',
      hint: 'give the monitoring port of that very server',
    });
  return varz.jetstream?.config?.sync_always === true;
}
