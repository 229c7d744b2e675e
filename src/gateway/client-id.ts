/**
 * How clients are told apart, for servers with `isolation: "per-client"`: by the legacy session, by the stdio process, or by the
 * header `Hostler-Client` of a modern client over HTTP. Without any of these the key is the client. The TCP connection says
 * nothing: clients share connections through proxies, and open several of their own.
 *
 * Invariant: the id of a client is scoped to its key. No key reaches the instance of another key by naming its client.
 */

import { compositeKey } from '../policy/composite-key.js';
import type { Principal } from '../policy/operation.js';

const clientName = /^[A-Za-z0-9._~-]{1,128}$/;

/** Whether the header may have this value. */
export const isClientName = (value: string): boolean => clientName.test(value);

/** `name`: from the header. Names of keys have no colon, so no key has the id of another key's client. */
export const modernClientId = ({ id }: Principal, name: string | undefined): string =>
  name === undefined ? id : compositeKey('client', id, name);
