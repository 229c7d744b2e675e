/** Keys of NATS users: the seed is the secret and stays with its owner, the public key goes into the server's configuration. */
import { loadNatsClient } from './nats-connection.js';

export interface NatsKeyPair {
  readonly seed: string;
  readonly publicKey: string;
}

export async function createNatsKey(): Promise<NatsKeyPair> {
  const { nkeys } = await loadNatsClient();
  const pair = nkeys.createUser();
  const made = { seed: new TextDecoder().decode(pair.getSeed()), publicKey: pair.getPublicKey() };
  pair.clear();
  return made;
}
