/**
 * Requests of modern clients, which are asked by answering them: what a modern server wants passes through with its state
 * sealed, what a legacy server asks in the middle of a call becomes such an answer (parked-call.ts).
 *
 * Invariants: no client sees a server's own state, nor is asked for what its request did not declare; a state is gone on from
 * only by the same caller with the same request.
 */
import type { Clock } from '../../../kernel/clock.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import { RPC } from '../../../wire/rpc-codes.js';
import {
  invalidState,
  missingCapability,
  refuseUndeclared,
  refuseUnknown,
  rpcError,
} from '../../bridge/bridge-errors.js';
import type { BridgedRequest, BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { carriedCapabilities } from '../../bridge/carried-capabilities.js';
import { canBeAsked, isDeclared, type Need, needOf } from '../../bridge/client-needs.js';
import { inputRequiredResult, readInputRequired, withState } from '../../bridge/input-required.js';
import type { Client } from '../../exchange.js';
import { ParkedCall } from './parked-call.js';
import type { ParkedCalls } from './parked-calls.js';
import type { StateKind, StateOwner, StateSeal } from './sealed-state.js';
import { areAccepted, isUrlRequired, readUrlRequired } from './url-required.js';

export interface ModernPorts {
  readonly clock: Clock;
  readonly seal: StateSeal;
  readonly calls: ParkedCalls;
}

export function relayModern(request: BridgedRequest, ports: ModernPorts): Promise<Relayed> {
  const { requestState, inputResponses } = request;
  const responses = inputResponses && `"inputResponses":${inputResponses.toString('utf8')}`;
  if (requestState === undefined) return sendFirst(request, ports, responses);
  const opened = ports.seal.open(requestState, ownerOf(request));
  if ('fault' in opened) return Promise.resolve(invalidState(opened.fault));
  switch (opened.kind) {
    case 'relayed': {
      const state = `"requestState":${opened.text}`;
      return sendFirst(request, ports, responses === undefined ? state : `${responses},${state}`);
    }
    case 'parked': {
      const [id, round] = opened.text.split('.') as [string, string];
      return ports.calls.get(id)?.resume(Number(round), request) ?? Promise.resolve(invalidState('not_waiting'));
    }
    case 'again':
      if (areAccepted(inputResponses, opened.text)) return sendFirst(request, ports, undefined);
      return Promise.resolve(
        rpcError('modern', RPC.invalidParams, 'the request needs an address to be visited, which was not agreed to'),
      );
    default:
      return opened.kind satisfies never;
  }
}

function sendFirst(request: BridgedRequest, ports: ModernPorts, members: string | undefined): Promise<Relayed> {
  const { client } = request.exchange;
  const capabilities = carriedCapabilities(client, true);
  const options: BridgeOptions = { capabilities, members };
  const seal = (kind: StateKind, text: string) => ports.seal.seal(kind, text, ownerOf(request));
  const tell = (relayed: Relayed) => told(request, relayed, seal);
  // Nothing is parked where nobody can be asked or nothing asks: the plain way costs no signal of its own.
  if (!canBeAsked(client.capabilities) || request.serverEra === 'modern')
    return request.send({ capabilities, members, onServerRequest: (inbound) => refuse(inbound, client) }).then(tell);
  const { clock, calls } = ports;
  return new ParkedCall(request, { clock, calls, tell, seal: (handle) => seal('parked', handle) }).start(options);
}

function refuse(inbound: InboundRequest, { capabilities }: Client): void {
  const need = needOf(inbound.method, inbound.params);
  if (!need) refuseUnknown(inbound);
  else if (!isDeclared(need, capabilities)) refuseUndeclared(inbound, need);
  // It came up in another era than it was known by, just now: the next call is prepared for it.
  else inbound.refuse(RPC.internalError, 'the client cannot be asked because of this call');
}

/** What the client is told of what the server answered. */
function told(request: BridgedRequest, relayed: Relayed, seal: (kind: StateKind, text: string) => string): Relayed {
  const { server, exchange } = request;
  const { capabilities } = exchange.client;
  if (isUrlRequired(relayed)) {
    if (!capabilities.elicitationUrl) return missingCapability(new Set<Need>(['url']));
    const requests = readUrlRequired(relayed);
    if (!requests)
      return rpcError('modern', RPC.internalError, 'the server asks for an address to be visited, but names none');
    return inputRequiredResult(requests, seal('again', String(requests.length)));
  }
  const required = readInputRequired(server, exchange.method, relayed);
  if (!required) return relayed;
  const missing = new Set(required.requests.map(({ need }) => need).filter((need) => !isDeclared(need, capabilities)));
  if (missing.size > 0) return missingCapability(missing);
  const { state } = required;
  if (!state) return relayed;
  const { bytes } = relayed;
  const sealed = seal('relayed', bytes.toString('utf8', state.start, state.end));
  return { ...relayed, bytes: withState(bytes, state, sealed) };
}

const ownerOf = ({ server, exchange, identity }: BridgedRequest): StateOwner => ({
  server,
  principal: exchange.client.principal,
  identity: identity(),
});
