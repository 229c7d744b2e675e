/**
 * Whether what goes to a broker can be read on the way.
 * Invariant: one rule for every engine: to another machine only with TLS, unless somebody said in so many words that it may be without.
 */
import { isLoopback } from '../config/values.js';
import { HostError } from '../kernel/errors.js';

/** A server may offer TLS at the others too; whoever is in between need not pass that on. */
const privateSchemes = { 'ws:': 'wss://', 'nats:': 'tls://' } as Readonly<Record<string, string | undefined>>;

export function requirePrivateWay({ protocol, hostname }: URL, insecure = false): void {
  const better = privateSchemes[protocol];
  if (better === undefined || insecure || isLoopback(hostname)) return;
  throw new HostError('invalid_spec', 'the address of the broker would send the key in the clear to another machine', {
    field: 'url',
    execution: 'not_executed',
    hint: `use ${better}, or set insecure if something else encrypts`,
  });
}
