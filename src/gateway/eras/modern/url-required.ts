/**
 * Modern client, legacy server that answers with error -32042: visit these addresses, then ask again. The newer era has no
 * such error; what it has is an answer that asks, and a request that comes back and is then sent anew, as it was.
 * The server said that it refused before doing anything, so sending it again runs nothing twice.
 */
import { memberBytes, memberString, memberText } from '../../../wire/json-members.js';
import { eachElement } from '../../../wire/json-scan.js';
import type { Relayed } from '../../bridge/bridged-request.js';
import { inputRequestsMax, inputRequiredBytesMax } from '../../bridge/input-required.js';

const urlRequiredCode = '-32042';

export interface UrlRequest {
  readonly key: string;
  readonly method: 'elicitation/create';
  readonly params: Buffer;
}

/** What is to be visited; undefined when the answer is none of these, or says nothing that could be asked. */
export function readUrlRequired({ kind, bytes, era }: Relayed): UrlRequest[] | undefined {
  if (kind !== 'error' || era !== 'legacy' || memberText(bytes, 'code') !== urlRequiredCode) return undefined;
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

export const isUrlRequired = ({ kind, bytes, era }: Relayed): boolean =>
  kind === 'error' && era === 'legacy' && memberText(bytes, 'code') === urlRequiredCode;

/** Whether the person agreed to all of it: `text` is how many there were. */
export function areAccepted(inputResponses: Buffer | undefined, text: string): boolean {
  return Array.from({ length: Number(text) }, (_, i) => `url-${i + 1}`).every((key) => {
    const response = inputResponses && memberBytes(inputResponses, key);
    return response !== undefined && memberString(response, 'action') === 'accept';
  });
}
