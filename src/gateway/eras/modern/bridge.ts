/**
 * The bridge for modern clients. It seals the state in `input_required` of a modern server. It converts requests that a legacy
 * server sends during a call (parked-call.ts), and its error -32042, to `input_required`.
 * Invariants: no client sees the state of a server. A state is valid only for the same caller with the same request.
 */
import type { Clock } from '../../../kernel/clock.js';
import { eraNamed } from '../../../session/eras/eras.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import { memberBytes, memberString, memberText, stringOf } from '../../../wire/json-members.js';
import { eachElement } from '../../../wire/json-scan.js';
import { RPC } from '../../../wire/methods.js';
import type { Bridge, BridgedRequest, Relayed } from '../../bridge/bridged-request.js';
import { refuseUndeclared, refuseUnknown, rpcError } from '../../bridge/bridged-request.js';
import {
  acceptsRequests,
  type ClientCapability,
  forwardedCapabilities,
  isDeclared,
  neededCapability,
} from '../../bridge/client-capabilities.js';
import { inputRequestsMax, inputRequiredBytesMax, readInputRequired, withState } from '../../bridge/input-required.js';
import type { Client } from '../../exchange.js';
import { inputRequiredResult, invalidState, missingCapability } from './own-answers.js';
import { ParkedCall, ParkedCalls } from './parked-call.js';
import { type StateOwner, StateSeal } from './parked-state.js';

interface ModernBridgeParts {
  readonly clock: Clock;
  readonly seal: StateSeal;
  readonly calls: ParkedCalls;
}

/** `calls`: only tests pass this table. */
export function createModernBridge({ clock, calls }: { readonly clock: Clock; readonly calls?: ParkedCalls }): Bridge {
  const parts: ModernBridgeParts = { clock, calls: calls ?? new ParkedCalls(), seal: new StateSeal(clock) };
  return {
    relay: (request) => relayModern(request, parts),
    endWaiting: (isMeant) => parts.calls.endWaiting(isMeant),
    close: () => parts.calls.close(),
  };
}

function relayModern(request: BridgedRequest, parts: ModernBridgeParts): Promise<Relayed> {
  const { inputResponses } = request;
  const requestState = request.requestState && stringOf(request.requestState);
  if (request.requestState && requestState === undefined)
    return Promise.resolve(rpcError('modern', RPC.invalidParams, 'requestState must be a string'));
  const responses = inputResponses && `"inputResponses":${inputResponses.toString('utf8')}`;
  if (requestState === undefined) return sendFirst(request, parts, responses);
  const opened = parts.seal.open(requestState, ownerOf(request));
  if ('fault' in opened) return Promise.resolve(invalidState(opened.fault));
  switch (opened.kind) {
    case 'relayed': {
      const state = `"requestState":${opened.text}`;
      return sendFirst(request, parts, responses === undefined ? state : `${responses},${state}`);
    }
    case 'parked': {
      const [id, round] = opened.text.split('.') as [string, string];
      return parts.calls.get(id)?.resume(Number(round), request) ?? Promise.resolve(invalidState('not_waiting'));
    }
    case 'again':
      if (areAccepted(inputResponses, opened.text)) return sendFirst(request, parts, undefined);
      return Promise.resolve(
        rpcError('modern', RPC.invalidParams, 'the user did not agree to visit the URL that this request needs'),
      );
    default:
      return opened.kind satisfies never;
  }
}

function sendFirst(request: BridgedRequest, parts: ModernBridgeParts, members: string | undefined): Promise<Relayed> {
  const { client } = request.exchange;
  const capabilities = forwardedCapabilities(client, true);
  const translate = (relayed: Relayed) => translated(request, relayed, parts.seal);
  // Without possible questions the call is not parked, which saves an AbortController per call.
  if (!acceptsRequests(client.capabilities) || request.serverEra?.hasServerRequests === false)
    return request
      .send({ capabilities, members, onServerRequest: (inbound) => refuse(inbound, client) })
      .then(translate);
  const { clock, calls } = parts;
  // The role of the client may have changed since its first request.
  const seal = (handle: string, { principal }: Client) =>
    parts.seal.seal('parked', handle, { ...ownerOf(request), principal });
  return new ParkedCall(request, { clock, calls, translate, seal }).start({ capabilities, members });
}

function refuse(inbound: InboundRequest, { capabilities }: Client): void {
  const need = neededCapability(inbound.method, inbound.params);
  if (!need) refuseUnknown(inbound);
  else if (!isDeclared(need, capabilities)) refuseUndeclared(inbound, need);
  // The server has changed its era since its last run. The next call will be parked.
  else inbound.refuse(RPC.internalError, 'the client cannot be asked during this call');
}

/** Converts error -32042 to `input_required`, and seals the state of an answer that requires input. */
function translated(request: BridgedRequest, relayed: Relayed, seal: StateSeal): Relayed {
  const { server, exchange } = request;
  const { capabilities } = exchange.client;
  if (isUrlRequired(relayed)) {
    if (!capabilities.elicitationUrl) return missingCapability(new Set<ClientCapability>(['url']));
    const requests = readUrlRequired(relayed);
    if (!requests)
      return rpcError(
        'modern',
        RPC.internalError,
        'the server requires the user to visit a URL, but its error contains no URL',
      );
    return inputRequiredResult(requests, seal.seal('again', String(requests.length), ownerOf(request)));
  }
  const required = readInputRequired(server, exchange.method, relayed);
  if (!required) return relayed;
  const missing = new Set(required.requests.map(({ need }) => need).filter((need) => !isDeclared(need, capabilities)));
  if (missing.size > 0) return missingCapability(missing);
  const { state } = required;
  if (!state) return relayed;
  const { bytes } = relayed;
  const sealed = seal.seal('relayed', bytes.toString('utf8', state.start, state.end), ownerOf(request));
  return { ...relayed, bytes: withState(bytes, state, sealed) };
}

const ownerOf = (request: BridgedRequest): StateOwner => ({
  server: request.server,
  principal: request.exchange.client.principal,
  identity: request.identity(),
});

const urlRequiredCode = '-32042';

interface UrlRequest {
  readonly key: string;
  readonly method: 'elicitation/create';
  readonly params: Buffer;
}

/** Undefined: the error contains no usable URL. */
function readUrlRequired({ bytes }: Relayed): UrlRequest[] | undefined {
  const data = memberBytes(bytes, 'data');
  const elicitations = data && memberBytes(data, 'elicitations');
  if (!elicitations || bytes.length > inputRequiredBytesMax) return undefined;
  const requests: UrlRequest[] = [];
  eachElement(elicitations, 0, elicitations.length, 0, (start, end) => {
    const params = elicitations.subarray(start, end);
    if (memberString(params, 'mode') === 'url' && memberString(params, 'url') !== undefined)
      requests.push({ key: `url-${requests.length + 1}`, method: 'elicitation/create', params });
    return requests.length < inputRequestsMax;
  });
  return requests.length > 0 ? requests : undefined;
}

const isUrlRequired = ({ kind, bytes, era }: Relayed): boolean =>
  kind === 'error' && eraNamed(era).asksInErrors && memberText(bytes, 'code') === urlRequiredCode;

/** Whether the user accepted every URL. `text`: the number of URLs, as stored in the sealed state. */
function areAccepted(inputResponses: Buffer | undefined, text: string): boolean {
  return Array.from({ length: Number(text) }, (_, i) => `url-${i + 1}`).every((key) => {
    const response = inputResponses && memberBytes(inputResponses, key);
    return response !== undefined && memberString(response, 'action') === 'accept';
  });
}
