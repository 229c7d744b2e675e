/** A key pair for one user of NATS: the server's configuration holds the public half, and nothing that is secret. */
import { loadNatsClient } from './nats-connect.js';

export interface UserPair {
  /** For the key file of whoever connects. */
  readonly seed: string;
  readonly publicKey: string;
}

export async function newUserPair(): Promise<UserPair> {
  const { nkeys } = await loadNatsClient();
  const pair = nkeys.createUser();
  const made = { seed: Buffer.from(pair.getSeed()).toString('ascii'), publicKey: pair.getPublicKey() };
  pair.clear();
  return made;
}
