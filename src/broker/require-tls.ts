/** One rule for both transports: a key is sent to another machine only over TLS, unless the configuration or the command says `insecure`. */
import { isLoopback } from '../config/values.js';
import { HostError } from '../kernel/errors.js';

/** A server may offer TLS with these schemes too, but an attacker on the network can remove the offer. */
const tlsSchemes: Readonly<Record<string, string | undefined>> = { 'ws:': 'wss://', 'nats:': 'tls://' };

export function requireTls({ protocol, hostname }: URL, insecure = false): void {
  const tlsScheme = tlsSchemes[protocol];
  if (tlsScheme === undefined || insecure || isLoopback(hostname)) return;
  throw new HostError('invalid_spec', 'the address of the broker would send the key in the clear to another machine', {
    field: 'url',
    execution: 'not_executed',
    hint: `use ${tlsScheme}, or set insecure if the network itself is encrypted`,
  });
}
