/**
 * What goes with a request beside its own words: who asks, until when anybody waits, and where progress and logs go.
 * Not here: what the bridge adds (bridge/).
 */
import type { HostRequestOptions } from '../host/host-interface.js';
import { NOTIFICATION } from '../wire/rpc-codes.js';
import type { Exchange } from './exchange.js';
import { isWanted, type LogLevels } from './log-levels.js';
import { editMembers } from './object-splice.js';
import { LOG_LEVEL, type RequestMeta } from './request-meta.js';
import type { Speaker } from './server-facts.js';

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

const logged = 'notifications/message';

export function relayOptions(
  exchange: Exchange,
  meta: RequestMeta,
  speaker: Speaker,
  levels: LogLevels,
): HostRequestOptions {
  const { client, signal } = exchange;
  const options: Writable<HostRequestOptions> = { principal: client.principal, signal, instance: client.id };
  const isLegacy = client.era === 'legacy';
  const level = isLegacy ? levels.of(client.id) : meta.logLevel;
  const { forwarded, progressToken } = meta;
  // A modern server logs only for requests that ask for it.
  const asked = level !== undefined && speaker.era === 'modern' ? `"${LOG_LEVEL}":"${level}"` : undefined;
  if (forwarded !== undefined || asked !== undefined) {
    options.meta =
      forwarded === undefined ? (asked as string) : asked === undefined ? forwarded : `${asked},${forwarded}`;
  }
  if (progressToken !== undefined) {
    options.onProgress = (params) => {
      const told = editMembers(params, [['progressToken', progressToken]]);
      if (told) exchange.notify(NOTIFICATION.progress, told);
    };
  }
  if (isLegacy || level !== undefined) {
    options.onServerNotification = (method, params) => {
      if (method === logged && params && isWanted(level, params)) exchange.notify(method, params);
    };
  }
  return options;
}
