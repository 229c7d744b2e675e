/** A key pair for one user of NATS: the server's configuration holds the public half, and nothing that is secret. */
import { HostError } from '../../kernel/errors.js';

export interface UserPair {
  /** For the key file of whoever connects. */
  readonly seed: string;
  readonly publicKey: string;
}

export async function newUserPair(): Promise<UserPair> {
  const { nkeys } = await import('@nats-io/transport-node').catch((cause) => {
    throw new HostError('invalid_spec', 'the client of NATS is not installed', {
      reason: 'missing_package',
      execution: 'not_executed',
      hint: 'npm install @nats-io/transport-node @nats-io/jetstream @nats-io/kv',
      cause,
    });
  });
  const pair = nkeys.createUser();
  return { seed: Buffer.from(pair.getSeed()).toString('ascii'), publicKey: pair.getPublicKey() };
}
