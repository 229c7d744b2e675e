/** A router with fake servers instead of a host, and functions that send it requests. Its bridge passes everything through. */
import type { Bridge } from '../../src/gateway/bridge/bridged-request.js';
import type { Client } from '../../src/gateway/exchange.js';
import { GatewayRouter } from '../../src/gateway/routing/router.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { type FakeClientFacts, FakeExchange, FakeSession, fakeClient } from './fake-exchange.js';
import { type FakeServer, FakeUpstreams } from './fake-upstreams.js';

/** Passes the answers of a modern client on unchanged. */
export const passThrough: Bridge = {
  relay: (request) => {
    const { inputResponses, requestState } = request;
    const members = [
      ...(inputResponses ? [`"inputResponses":${inputResponses.toString('utf8')}`] : []),
      ...(requestState === undefined
        ? []
        : [`"requestState":${JSON.stringify(JSON.parse(requestState.toString('utf8')))}`]),
    ];
    return request.send(members.length > 0 ? { members: members.join(',') } : {});
  },
};

export class FakeGateway {
  readonly upstreams: FakeUpstreams;
  readonly clock = new FakeClock();
  readonly problems: unknown[] = [];
  readonly router: GatewayRouter;
  /** True: no key and no role is configured. */
  mayBePublic = true;

  constructor(servers: Readonly<Record<string, FakeServer>>, bridge: Bridge = passThrough) {
    this.upstreams = new FakeUpstreams(servers);
    this.router = new GatewayRouter({
      upstreams: this.upstreams,
      bridge,
      clock: this.clock,
      serverInfo: { name: 'hostler', version: '1.2.3' },
      mayBePublic: () => this.mayBePublic,
      onProblem: (error) => this.problems.push(error),
    });
  }

  /** Sends a request without waiting for its answer. */
  send(client: Client, method: string, params?: string, idText = '1'): FakeExchange {
    const exchange = new FakeExchange(client, method, params, idText);
    this.router.handle(exchange);
    return exchange;
  }

  ask(client: Client, method: string, params?: string): Promise<FakeExchange> {
    return this.send(client, method, params).ended;
  }

  open(facts: FakeClientFacts = {}): FakeSession {
    const session = new FakeSession(fakeClient(facts));
    this.router.opened(session);
    return session;
  }
}
