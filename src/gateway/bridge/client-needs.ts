/**
 * What a client must have declared before it may be asked something, for each of the three things it can be asked.
 * Not here: asking (server-requests.ts, input-rounds.ts, parked-call.ts).
 *
 * Invariant: what was not declared is never asked. A bare `elicitation: {}` means forms, as it did before there were modes.
 */
import { memberBytes, memberString } from '../../wire/json-members.js';
import type { ClientCapabilities } from '../exchange.js';

const needs = ['form', 'url', 'sampling', 'samplingTools', 'roots'] as const;
export type Need = (typeof needs)[number];

/** What the request needs of a client; undefined: no client can be asked this. */
export function needOf(method: string, params: Buffer | undefined): Need | undefined {
  switch (method) {
    case 'elicitation/create':
      return params && memberString(params, 'mode') === 'url' ? 'url' : 'form';
    case 'sampling/createMessage':
      return params && (memberBytes(params, 'tools') || memberBytes(params, 'toolChoice'))
        ? 'samplingTools'
        : 'sampling';
    case 'roots/list':
      return 'roots';
    default:
      return undefined;
  }
}

export function isDeclared(need: Need, capabilities: ClientCapabilities): boolean {
  switch (need) {
    case 'form':
      return capabilities.elicitation;
    case 'url':
      return capabilities.elicitationUrl;
    case 'sampling':
      return capabilities.sampling;
    case 'samplingTools': {
      const sampling = capabilities.sampling ? memberBytes(capabilities.raw, 'sampling') : undefined;
      return sampling !== undefined && memberBytes(sampling, 'tools') !== undefined;
    }
    case 'roots':
      return capabilities.roots;
    default:
      return need satisfies never;
  }
}

/** Whether there is anything at all that this client can be asked. */
export const canBeAsked = ({ elicitation, elicitationUrl, sampling, roots }: ClientCapabilities): boolean =>
  elicitation || elicitationUrl || sampling || roots;

/** As `data.requiredCapabilities` of error -32021 has it. */
export function requiredCapabilities(missing: ReadonlySet<Need>): string {
  const modes = [missing.has('form') && '"form":{}', missing.has('url') && '"url":{}'].filter(Boolean);
  const members = [
    modes.length > 0 && `"elicitation":{${modes.join(',')}}`,
    (missing.has('sampling') || missing.has('samplingTools')) &&
      `"sampling":${missing.has('samplingTools') ? '{"tools":{}}' : '{}'}`,
    missing.has('roots') && '"roots":{}',
  ].filter(Boolean);
  return `{${members.join(',')}}`;
}

const words: Record<Need, string> = {
  form: 'elicitation',
  url: 'elicitation by url',
  sampling: 'sampling',
  samplingTools: 'sampling with tools',
  roots: 'roots',
};

export const describeNeeds = (missing: Iterable<Need>): string => [...missing].map((need) => words[need]).join(', ');
