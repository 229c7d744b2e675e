/**
 * The capabilities that a client declares, that a server request needs, and that the gateway declares to servers.
 * Not here: requests to the client (eras/).
 * Invariant: a client gets no request for a capability that it did not declare. A bare `elicitation: {}` declares forms.
 */
import { isObject, memberBytes, memberString, membersBytes } from '../../wire/json-members.js';
import type { Client, ClientCapabilities } from '../exchange.js';

const needs = ['form', 'url', 'sampling', 'samplingTools', 'roots'] as const;
export type ClientCapability = (typeof needs)[number];

/** The capability that a request needs; undefined: no client supports this method. */
export function neededCapability(method: string, params: Buffer | undefined): ClientCapability | undefined {
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

export function isDeclared(need: ClientCapability, capabilities: ClientCapabilities): boolean {
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

export const acceptsRequests = ({ elicitation, elicitationUrl, sampling, roots }: ClientCapabilities): boolean =>
  elicitation || elicitationUrl || sampling || roots;

/** The value of `data.requiredCapabilities` in error -32021. */
export function requiredCapabilities(missing: ReadonlySet<ClientCapability>): string {
  const modes = [missing.has('form') && '"form":{}', missing.has('url') && '"url":{}'].filter(Boolean);
  const members = [
    modes.length > 0 && `"elicitation":{${modes.join(',')}}`,
    (missing.has('sampling') || missing.has('samplingTools')) &&
      `"sampling":${missing.has('samplingTools') ? '{"tools":{}}' : '{}'}`,
    missing.has('roots') && '"roots":{}',
  ].filter(Boolean);
  return `{${members.join(',')}}`;
}

const needTexts: Record<ClientCapability, string> = {
  form: 'elicitation',
  url: 'elicitation by url',
  sampling: 'sampling',
  samplingTools: 'sampling with tools',
  roots: 'roots',
};

export const describeCapabilities = (missing: Iterable<ClientCapability>): string =>
  [...missing].map((need) => needTexts[need]).join(', ');

const forwardedIfReachable = ['elicitation', 'sampling', 'roots'] as const;
const alwaysForwarded = ['experimental'] as const;
const extension = 'io.modelcontextprotocol/ui';

/** An object with fewer bytes than this declares no capability. */
const emptyBytes = '{"a":1}'.length;

/** Rendered texts. A legacy session, or a cached modern envelope, has one capabilities object for all its requests. */
const written = new WeakMap<Client['capabilities'], string>();

/** The capabilities for the server, as one JSON object. `isReachable` false: the client cannot receive requests. */
export function forwardedCapabilities({ capabilities }: Client, isReachable: boolean): string {
  if (capabilities.raw.length < emptyBytes) return '{}';
  if (!isReachable) return render(capabilities.raw, alwaysForwarded);
  let text = written.get(capabilities);
  if (text === undefined) {
    text = render(capabilities.raw, [...forwardedIfReachable, ...alwaysForwarded]);
    written.set(capabilities, text);
  }
  return text;
}

function render(raw: Buffer, keys: readonly string[]): string {
  const values = membersBytes(raw, [...keys, 'extensions']);
  const members = keys.flatMap((key, i) => (values[i] ? [`"${key}":${values[i].toString('utf8')}`] : []));
  const extensions = values[keys.length];
  const settings = extensions && memberBytes(extensions, extension);
  if (settings) members.push(`"extensions":{"${extension}":${settings.toString('utf8')}}`);
  return `{${members.join(',')}}`;
}

const none = Buffer.from('{}');
/** The limit is low because every request to a server repeats the capabilities. */
export const capabilitiesBytesMax = 64 * 1024;

export class DeclaredCapabilities implements ClientCapabilities {
  readonly raw: Buffer;

  /** A value that is not an object declares nothing. */
  constructor(raw: Buffer | undefined) {
    this.raw = isObject(raw) ? raw : none;
  }

  /** True for most clients. */
  get #isEmpty(): boolean {
    return this.raw.length === none.length;
  }

  /** An object without a mode declares forms, which were the only mode in the first revision with elicitation. */
  get elicitation(): boolean {
    if (this.#isEmpty) return false;
    const elicitation = memberBytes(this.raw, 'elicitation');
    if (!isObject(elicitation)) return false;
    const [form, url] = membersBytes(elicitation, ['form', 'url']);
    return isObject(form) || !isObject(url);
  }

  get elicitationUrl(): boolean {
    if (this.#isEmpty) return false;
    const elicitation = memberBytes(this.raw, 'elicitation');
    return isObject(elicitation) && isObject(memberBytes(elicitation, 'url'));
  }

  get sampling(): boolean {
    return !this.#isEmpty && isObject(memberBytes(this.raw, 'sampling'));
  }

  get roots(): boolean {
    return !this.#isEmpty && isObject(memberBytes(this.raw, 'roots'));
  }
}
