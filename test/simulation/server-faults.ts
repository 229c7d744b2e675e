/** Changes the state of a simulated server or of its network, for the worse or for the better. */
import type { Chance } from './chance.js';
import { type HttpFate, httpFaults, type Opening, type SimulatedHttpServer } from './simulated-http-server.js';
import { type SimulatedStdioServer, type Start, type StdioFate, stdioFaults } from './simulated-stdio-server.js';

const httpEvents = [
  ...(['forget', 'forget', 'forget badly', 'forget badly', 'openings'] as const),
  ...(['redeploy', 'redeploy', 'redeploy badly', 'other era', 'list badly', 'list badly'] as const),
  ...(['close port', 'close port', 'open port', 'open port', 'silence port', 'reset'] as const),
  ...(['faults', 'one fault', 'well', 'well', 'well'] as const),
];
const stdioEvents = ['die', 'die', 'wedge', 'starts', 'faults', 'one fault', 'well', 'well'] as const;

const oneHttpFault: readonly HttpFate[] = ['hang', 'late', 'reset_before', 'http_429', 'http_429_wait', 'http_502'];
/** Fates of the lists of a new release. */
const listFaults: readonly HttpFate[] = ['hang', 'late', 'http_429', 'http_429_wait', 'http_502', 'answer'];
const oneStdioFault: readonly StdioFate[] = ['hang', 'late', 'crash'];
const openings: readonly Opening[] = [
  ...(['well', 'rpc_error', 'rpc_error', 'http_500', 'http_429_wait', 'http_503_wait', 'hang', 'slow'] as const),
];
const starts: readonly Start[] = ['well', 'exits', 'exits', 'missing', 'silent', 'flap'];

const faultRates = [0.1, 0.5, 1];
/** Some values are longer than the limit of Hostler. */
const retryAfterS = [0, 1, 10, 60, 1_000];

/** Returns a description of the change. */
export const changeServer = (upstream: SimulatedHttpServer | SimulatedStdioServer, chance: Chance): string =>
  upstream.kind === 'http' ? changeHttp(upstream, chance) : changeStdio(upstream, chance);

function changeHttp(upstream: SimulatedHttpServer, chance: Chance): string {
  const kind = chance.oneOf(httpEvents);
  if (kind === 'forget' || kind === 'forget badly') upstream.forgetSessions();
  if (kind === 'redeploy' || kind === 'redeploy badly') upstream.redeploy(upstream.mcp.era);
  if (kind === 'list badly') {
    upstream.redeploy(upstream.mcp.era);
    upstream.lists = Array.from({ length: chance.int(1, 4) }, () => chance.oneOf(listFaults));
    upstream.retryAfterS = chance.oneOf(retryAfterS);
  }
  if (kind === 'other era') upstream.redeploy(upstream.mcp.era === 'legacy' ? 'modern' : 'legacy');
  if (kind === 'openings' || kind === 'forget badly' || kind === 'redeploy badly')
    upstream.openings = Array.from({ length: chance.int(1, 4) }, () => chance.oneOf(openings));
  if (kind === 'close port') upstream.port.close();
  if (kind === 'open port') upstream.port.open();
  if (kind === 'silence port') upstream.port.silence();
  if (kind === 'reset') upstream.port.resetAll();
  if (kind === 'well') upstream.faultRate = 0;
  if (kind === 'faults' || kind === 'one fault') {
    upstream.faultRate = kind === 'one fault' ? 1 : chance.oneOf(faultRates);
    upstream.faults = kind === 'one fault' ? [chance.oneOf(oneHttpFault)] : httpFaults;
    upstream.retryAfterS = chance.oneOf(retryAfterS);
  }
  return kind;
}

function changeStdio(upstream: SimulatedStdioServer, chance: Chance): string {
  const kind = chance.oneOf(stdioEvents);
  if (kind === 'die') upstream.process?.die();
  if (kind === 'wedge') upstream.process?.wedge();
  if (kind === 'starts') upstream.starts = Array.from({ length: chance.int(1, 8) }, () => chance.oneOf(starts));
  if (kind === 'well') upstream.faultRate = 0;
  if (kind === 'faults' || kind === 'one fault') {
    upstream.faultRate = kind === 'one fault' ? 1 : chance.oneOf(faultRates);
    upstream.faults = kind === 'one fault' ? [chance.oneOf(oneStdioFault)] : stdioFaults;
  }
  return kind;
}
