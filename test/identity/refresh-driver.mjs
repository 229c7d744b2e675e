/**
 * A process that shares a grant: several callers refresh until the generation is `target`, or the process dies by SIGKILL during a
 * refresh. Argument: JSON with folder, id, target, callers and `dies` (`before` the request, `between` answer and store, `after` the
 * store). Prints the number of sent requests, and of calls without a token.
 */
import process from 'node:process';
import { Grant } from '../../dist/identity/grant.js';
import { createOAuthHttp } from '../../dist/identity/oauth-http.js';
import { openStore } from '../../dist/identity/open-store.js';
import { requestToken } from '../../dist/identity/token-endpoint.js';
import { systemClock } from '../../dist/kernel/clock.js';

const { folder, id, target, dies, callers = 1 } = JSON.parse(process.argv[2]);
const die = () => process.kill(process.pid, 'SIGKILL');
const store = openStore({ folder, onProblem: console.error });
const row = store.readGrant(id);
const http = createOAuthHttp({ server: 'docs', clock: systemClock, random: Math.random, url: row.issuer });
let requests = 0;
const grant = new Grant(row, {
  store,
  clock: systemClock,
  random: Math.random,
  secrets: { know() {}, forget() {} },
  async request({ issuer, clientId, resource, refreshToken, facts }) {
    if (dies === 'before') die();
    requests++;
    const client = { clientId, method: 'none' };
    const params = { refresh_token: refreshToken, resource };
    const request = { issuer, tokenEndpoint: facts.tokenEndpoint, client, grantType: 'refresh_token', params };
    const answer = await requestToken(http, request, new Date());
    if (dies === 'between') die();
    return answer;
  },
  onChange() {
    if (dies === 'after') die();
  },
  onRefresh() {},
  onProblem: console.error,
});
// The clock of Hostler does not keep the process alive.
const alive = setInterval(() => {}, 1_000);
let failed = 0;
let result = 'renewed';
/** A call whose token has expired, so that it needs the next token. */
const call = async (ended) => {
  result = await grant.refresh().catch((error) => String(error));
  if (result !== 'renewed' || grant.token() === ended) failed++;
};
while (grant.row.gen < target && result !== 'dead') {
  const ended = grant.token();
  await Promise.all(Array.from({ length: callers }, () => call(ended)));
}
grant.close();
clearInterval(alive);
console.log(JSON.stringify({ requests, gen: grant.row.gen, result, failed }));
