/** Answers of the modern bridge itself: errors about input and state, and `input_required` for a server of an older era. */
import { MODERN_ERRORS } from '../../../session/eras/modern/protocol.js';
import { RPC } from '../../../wire/methods.js';
import { type Relayed, rpcError } from '../../bridge/bridged-request.js';
import { type ClientCapability, describeCapabilities, requiredCapabilities } from '../../bridge/client-capabilities.js';

export const missingCapability = (missing: ReadonlySet<ClientCapability>): Relayed =>
  rpcError(
    'modern',
    MODERN_ERRORS.missingCapability,
    `the server needs a capability that the client did not declare: ${describeCapabilities(missing)}`,
    `{"requiredCapabilities":${requiredCapabilities(missing)}}`,
  );

export type StateFault = 'tampered' | 'expired' | 'other_caller' | 'other_request' | 'not_waiting';

const faultTexts: Record<StateFault, string> = {
  tampered: 'requestState was not issued here, or it was changed; send the request again without it',
  expired: 'requestState has expired; send the request again without it',
  other_caller: 'requestState was issued to another caller or for another server',
  other_request:
    'requestState belongs to another request: method, name and arguments must be those of the first request',
  not_waiting: 'no call waits for this requestState; it was used already, or the call has ended',
};

export const invalidState = (fault: StateFault): Relayed =>
  rpcError('modern', RPC.invalidParams, faultTexts[fault], `{"reason":"invalid_request_state","fault":"${fault}"}`);

/** `state` must not need JSON escapes. */
export function inputRequiredResult(
  requests: Iterable<{ readonly key: string; readonly method: string; readonly params: Buffer | undefined }>,
  state: string,
): Relayed {
  const entries = Array.from(
    requests,
    ({ key, method, params }) =>
      `${JSON.stringify(key)}:{"method":${JSON.stringify(method)}${params ? `,"params":${params.toString('utf8')}` : ''}}`,
  );
  const text = `{"resultType":"input_required","inputRequests":{${entries.join(',')}},"requestState":"${state}"}`;
  return { kind: 'result', bytes: Buffer.from(text), era: 'modern' };
}
