import { describe, expect, test } from 'vitest';
import { HostError, isHostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { WholeAnswer } from '../transports/http/whole-exchange.js';
import { type Discovered, type DiscoveryInput, discover } from './discovery.js';
import type { OAuthHttp } from './oauth-http.js';

const server = 'https://mcp.example';
const url = `${server}/a/b`;
const wellKnown = `${server}/.well-known/oauth-protected-resource`;
const oldestPlace = `${server}/.well-known/oauth-authorization-server`;

const faults = ['200', '404', '500', 'timeout', 'HTML', '1 MiB', 'redirect'] as const;
type Fault = (typeof faults)[number];

/** The answers of addresses. An address that is not listed has no document. */
type World = ReadonlyMap<string, { readonly fault: Fault | number; readonly document: object }>;

const answer = (status: number, body = '', headers = {}): WholeAnswer => ({ status, headers, body: Buffer.from(body) });
const failure = (reason: string) => new HostError('timeout', 'no', { server: 's', reason });

function served(world: World, clock: FakeClock) {
  const requests: string[] = [];
  const http: OAuthHttp = async ({ url: place, timeoutMs = 0 }) => {
    requests.push(place);
    const { fault, document } = world.get(place) ?? { fault: '404', document: {} };
    if (typeof fault === 'number') return answer(fault);
    switch (fault) {
      case '200':
        return answer(200, JSON.stringify(document));
      case '404':
        return answer(404);
      case '500':
        return answer(500);
      case 'HTML':
        return answer(200, '<!doctype html>');
      case 'redirect':
        return answer(302, '', { location: 'https://elsewhere.example/x' });
      case '1 MiB':
        throw failure('metadata_too_large');
      case 'timeout':
        clock.advance(timeoutMs);
        throw failure('metadata_unreachable');
    }
  };
  return { http, requests };
}

const metadataOf = (issuer: string, place: string) => ({
  issuer,
  token_endpoint: `${issuer}/token?document=${encodeURIComponent(place)}`,
  code_challenge_methods_supported: ['S256'],
});
const resourceMetadata = (issuer: string) => ({ resource: url, authorization_servers: [issuer] });

/** The rules as a list of addresses: the result is the document, or the reason why there is none. */
function first(world: World, places: readonly string[], isNamed: boolean): { place: string } | { reason: string } {
  for (const place of places) {
    const fault = world.get(place)?.fault ?? '404';
    if (fault === '200') return { place };
    if (fault === '1 MiB') return { reason: 'metadata_too_large' };
    if (fault === 'redirect') return { reason: 'redirected' };
    if (fault === 'timeout' || fault === '500') return { reason: 'metadata_unreachable' };
    if (isNamed) return { reason: fault === 'HTML' ? 'metadata_invalid' : 'metadata_unreachable' };
  }
  return { reason: 'none' };
}

function expected(
  world: World,
  named: string | undefined,
  known: string | undefined,
  issuer: string,
  isTenant: boolean,
) {
  const places = named === undefined ? [`${wellKnown}/a/b`, wellKnown] : [named];
  const found = first(world, places, named !== undefined);
  if ('place' in found) {
    if (known !== undefined && known !== issuer) return 'issuer_changed';
    const origin = new URL(issuer).origin;
    const [rfc, oidc] = ['oauth-authorization-server', 'openid-configuration'].map((n) => `${origin}/.well-known/${n}`);
    const own = isTenant ? [`${rfc}/t`, `${oidc}/t`, `${issuer}/.well-known/openid-configuration`] : [rfc, oidc];
    const metadata = first(world, own as string[], false);
    if ('place' in metadata) return metadataOf(issuer, metadata.place).token_endpoint;
    return metadata.reason === 'none' ? 'metadata_unreachable' : metadata.reason;
  }
  if (found.reason !== 'none') return found.reason;
  const isAbsent = places.every((place) => (world.get(place)?.fault ?? '404') === '404');
  if (!isAbsent || (known ?? server) !== server) return 'no_authorization_server';
  const oldest = first(world, [oldestPlace], false);
  if ('place' in oldest) return metadataOf(server, oldest.place).token_endpoint;
  return oldest.reason === 'none' ? `${server}/token` : oldest.reason;
}

async function outcome(input: Partial<DiscoveryInput>, http: OAuthHttp, clock: FakeClock): Promise<string> {
  try {
    const { as }: Discovered = await discover({ server: 's', url, ...input }, http, clock);
    return as.token_endpoint;
  } catch (error) {
    if (!isHostError(error)) throw error;
    return String(error.details.reason);
  }
}

describe('AC-A1 discovery', () => {
  const prmPlaces = ['named path', 'named elsewhere', 'path', 'root', 'nowhere'] as const;
  const metadataPlaces = ['RFC 8414', 'OpenID', 'RFC 8414 /t', 'OpenID /t', 'OpenID appended', 'nowhere'] as const;
  const eras = ['2025-03-26', '2025-03-26, own origin known', 'newer', 'newer, issuer known'] as const;

  const addressOf = (place: (typeof metadataPlaces)[number], issuer: string): string | undefined => {
    const { origin } = new URL(issuer);
    return {
      'RFC 8414': `${origin}/.well-known/oauth-authorization-server`,
      OpenID: `${origin}/.well-known/openid-configuration`,
      'RFC 8414 /t': `${origin}/.well-known/oauth-authorization-server/t`,
      'OpenID /t': `${origin}/.well-known/openid-configuration/t`,
      'OpenID appended': `${issuer}/.well-known/openid-configuration`,
      nowhere: undefined,
    }[place];
  };
  const prmOf = (place: (typeof prmPlaces)[number]): string | undefined =>
    ({
      'named path': `${wellKnown}/a/b`,
      'named elsewhere': `${server}/custom.json`,
      path: `${wellKnown}/a/b`,
      root: wellKnown,
      nowhere: undefined,
    })[place];

  test('AC-A1 each mix of addresses, answers and eras gives the right document or reason, in at most 8 requests and 20 s', async () => {
    let cells = 0;
    const outcomes = new Map<string, number>();
    for (const prm of prmPlaces)
      for (const metadata of metadataPlaces)
        for (const era of eras)
          for (const fault of faults)
            for (const isOfResource of [true, false]) {
              const isTenant = !['RFC 8414', 'OpenID'].includes(metadata);
              const issuer = isTenant ? 'https://as.example/t' : 'https://as.example';
              const world = new Map<string, { fault: Fault; document: object }>();
              const [at, place] = [prmOf(prm), addressOf(metadata, issuer)];
              if (at) world.set(at, { fault: isOfResource ? fault : '200', document: resourceMetadata(issuer) });
              const own = isOfResource ? '200' : fault;
              if (place) world.set(place, { fault: own, document: metadataOf(issuer, place) });
              if (era.startsWith('2025-03-26'))
                world.set(oldestPlace, { fault: own, document: metadataOf(server, oldestPlace) });
              const named = prm.startsWith('named') ? at : undefined;
              const known = { '2025-03-26, own origin known': server, 'newer, issuer known': issuer }[era as string];
              const clock = new FakeClock();
              const { http, requests } = served(world, clock);
              const input = { resourceMetadata: named, knownIssuer: known };
              const wanted = expected(world, named, known, issuer, isTenant);
              const cell = `${prm}, ${metadata}, ${era}, ${fault} of ${isOfResource ? 'resource' : 'issuer'}`;
              expect([cell, await outcome(input, http, clock)]).toEqual([cell, wanted]);
              expect([cell, requests.length <= 8, clock.nowMs() <= 20_000]).toEqual([cell, true, true]);
              outcomes.set(wanted, (outcomes.get(wanted) ?? 0) + 1);
              cells++;
            }
    expect(cells).toBe(5 * 6 * 7 * 4 * 2);
    // The cases are not all alike: every reason and several documents occur.
    for (const reason of ['metadata_unreachable', 'metadata_too_large', 'metadata_invalid', 'redirected'])
      expect(outcomes.get(reason)).toBeGreaterThan(10);
    expect([...outcomes.keys()].filter((key) => key.startsWith('https://')).length).toBe(7);
  });

  test.each([
    [404, true],
    [405, true],
    [410, true],
    [400, false],
    [401, false],
    [403, false],
    [204, false],
  ])('AC-A1 after the status %i the rules of 2025-03-26 apply: %s', async (status, isTaken) => {
    const clock = new FakeClock();
    const world: World = new Map([
      [wellKnown, { fault: status, document: {} }],
      [`${wellKnown}/a/b`, { fault: status, document: {} }],
    ]);
    const { http } = served(world, clock);
    expect(await outcome({}, http, clock)).toBe(isTaken ? `${server}/token` : 'no_authorization_server');
  });

  test.each([
    ['without a list of authorization servers', undefined, 'https://as.example/token', 'no_authorization_server'],
    ['with an empty list', [], 'https://as.example/token', 'no_authorization_server'],
    ['with a list of another kind', { a: 1 }, 'metadata_invalid', 'metadata_invalid'],
    ['with a list of other servers', ['https://other.example'], 'issuer_changed', 'metadata_unreachable'],
  ])('AC-A1 resource metadata %s: only a pinned issuer helps', async (_what, servers, pinned, unpinned) => {
    const issuer = 'https://as.example';
    const place = `${issuer}/.well-known/oauth-authorization-server`;
    const world: World = new Map([
      [wellKnown, { fault: '200', document: { resource: url, authorization_servers: servers } }],
      [place, { fault: '200', document: { ...metadataOf(issuer, place), token_endpoint: `${issuer}/token` } }],
    ]);
    const clock = new FakeClock();
    const { http } = served(world, clock);
    expect(await outcome({ issuer }, http, clock)).toBe(pinned);
    expect(await outcome({}, http, clock)).toBe(unpinned);
  });

  test('AC-A18 an issuer that reads like another host is refused before a request to it, and before a person is asked', async () => {
    for (const issuer of [
      'https://login.honest.example@as.example',
      'https://login.honest.example:x@as.example/t',
      'https://as.example\\@login.honest.example',
      'https://as.example/?login.honest.example',
      'https://as.example/#login.honest.example',
      'https:as.example',
    ]) {
      const questions: string[] = [];
      const asked: string[] = [];
      const http: OAuthHttp = async ({ url: place }) => {
        asked.push(place);
        const isResource = place.startsWith(server);
        return answer(200, JSON.stringify(isResource ? resourceMetadata(issuer) : metadataOf(issuer, '')));
      };
      const confirmMove = async (question: string) => questions.push(question) > 0;
      for (const input of [{}, { knownIssuer: 'https://login.honest.example', confirmMove }])
        expect([issuer, await outcome(input, http, new FakeClock())]).toEqual([issuer, 'metadata_invalid']);
      expect(asked.filter((place) => !place.startsWith(server))).toEqual([]);
      expect(questions).toEqual([]);
    }
  });

  test('AC-A1 at most three redirects are followed, within one origin; one time limit is for all requests together', async () => {
    const clock = new FakeClock();
    const hop = (left: number) => `${wellKnown}/a/b${'x'.repeat(left)}`;
    for (const [hops, wanted] of [
      [3, 'https://as.example/token'],
      [4, 'redirected'],
    ] as const) {
      let left: number = hops;
      const http: OAuthHttp = async ({ url: place }) => {
        if (place.startsWith(server) && left > 0) return answer(302, '', { location: hop(--left) });
        if (place.startsWith(server)) return answer(200, JSON.stringify(resourceMetadata('https://as.example')));
        return answer(200, JSON.stringify({ ...metadataOf('https://as.example', ''), token_endpoint: wanted }));
      };
      expect(await outcome({}, http, clock)).toBe(wanted);
    }
    const waits: number[] = [];
    const slow: OAuthHttp = async ({ timeoutMs = 0 }) => {
      waits.push(timeoutMs);
      clock.advance(9_000);
      return answer(404);
    };
    await outcome({ issuer: 'https://as.example/t' }, slow, clock);
    expect(waits.slice(0, 3)).toEqual([10_000, 10_000, 2_000]);
  });
});
