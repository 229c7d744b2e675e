/**
 * The logins that wait for a person, as one list in identity.db: a host shows them in its status.
 * Invariants: the list has no secret, because `state` and verifier stay in the memory of the login. A login counts until its time is over
 * or its process has ended.
 */
import { canonicalUrl } from './grant-row.js';
import type { IdentityStore } from './identity-store.js';
import { isObject, parseJson } from './json.js';
import { isHolderGone, newHolder } from './lease-holder.js';

interface PendingLogin {
  readonly url: string;
  readonly account: string;
  readonly by: string;
  readonly untilMs: number;
}

/** Its URL and `auth.account`. */
type ConfiguredServer = { readonly url: string; readonly account?: string | undefined };

const name = 'pending';
const pendingMax = 64;

/** Adds a login; the returned function removes it. The login goes on if the store cannot be written now. */
export function addPending(store: IdentityStore, of: ConfiguredServer, nowMs: number, waitMs: number): () => void {
  const own: PendingLogin = { ...keyOf(of), by: newHolder(), untilMs: nowMs + waitMs };
  const change = (added: readonly PendingLogin[]) => {
    try {
      store.changeValue(name, (text) => {
        const others = listOf(text).filter((each) => each.by !== own.by && isWaiting(each, nowMs));
        return JSON.stringify([...others, ...added].slice(-pendingMax));
      });
    } catch {
      // The login continues; only the status of hosts does not show it.
    }
  };
  change([own]);
  return () => change([]);
}

export function isPending(store: IdentityStore, of: ConfiguredServer, nowMs: number): boolean {
  const { url, account } = keyOf(of);
  return listOf(store.value(name)).some(
    (each) => each.url === url && each.account === account && isWaiting(each, nowMs),
  );
}

const keyOf = ({ url, account = '' }: ConfiguredServer) => ({ url: canonicalUrl(url), account });

const isWaiting = ({ by, untilMs }: PendingLogin, nowMs: number): boolean => nowMs < untilMs && !isHolderGone(by);

function listOf(text = ''): readonly PendingLogin[] {
  const list = parseJson(text);
  return Array.isArray(list) ? (list.filter(isObject) as readonly object[] as readonly PendingLogin[]) : [];
}
