/** What `hostler doctor` says about the logins of this user. */
import { readFileSync } from 'node:fs';
import type { ServerDefinition } from '../../config/server-definition.js';
import { isAttached, isStdio } from '../../config/server-spec.js';
import { identityPlace, keySourceOf, keyTexts } from '../../identity/identity-place.js';
import { isHostError } from '../../kernel/errors.js';
import { openUserStore } from './identity-config.js';

export interface Finding {
  readonly check: string;
  /** A `note` does not change the exit code. */
  readonly level: 'ok' | 'note' | 'broken';
  readonly what: string;
  readonly hint?: string | undefined;
}

/** Reports logins that have ended, and a store that cannot be opened. A server without a login is not reported: it may need none. */
export async function loginFindings(
  servers: readonly ServerDefinition[],
  env: NodeJS.ProcessEnv,
  pid: number | undefined,
): Promise<Finding[]> {
  const check = 'logins';
  try {
    const store = await openUserStore(env, false);
    if (!store) return [];
    const rows = servers.flatMap(({ name, spec }) => {
      if (isStdio(spec) || isAttached(spec)) return [];
      const row = store.findGrant(spec.url, spec.auth ?? { grant: 'code' });
      return row?.state === 'dead' ? [{ name, reason: row.reason ?? 'unknown' }] : [];
    });
    const ended = rows.map(({ name, reason }): Finding => {
      const what = `the login of ${name} has ended (${reason})`;
      return { check, level: 'note', what, hint: `hostler login ${name}` };
    });
    const stored: Finding = {
      check,
      level: 'ok',
      what: `${store.grants().length} logins are stored, sealed with ${keyTexts[keySourceOf(identityPlace(env))]}`,
    };
    return [...(ended.length === 0 ? [stored] : ended), ...coreFindings(pid)];
  } catch (error) {
    if (!isHostError(error)) throw error;
    return [{ check, level: 'broken', what: error.message, hint: error.hint }];
  }
}

/** `pid`: the running Hostler. If none runs, the limits of this process are checked, because a new Hostler would inherit them. */
function coreFindings(pid: number | undefined): Finding[] {
  let limits = '';
  try {
    limits = readFileSync(`/proc/${pid ?? 'self'}/limits`, 'utf8');
  } catch {
    // Another system, or a process of another user.
  }
  const [, soft = '0'] = /^Max core file size +(\S+)/m.exec(limits) ?? [];
  const what = 'a crash may write a file with the tokens in memory';
  const hint = 'start Hostler after `ulimit -c 0`, or with LimitCORE=0 in its systemd unit';
  return soft === '0' ? [] : [{ check: 'core files', level: 'note', what, hint }];
}
