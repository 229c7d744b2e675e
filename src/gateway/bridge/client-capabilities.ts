/**
 * The capabilities that a client declares, the ones that a request of a server needs, and the ones that servers get to see.
 * Not here: asking the client (eras/).
 * Invariant: a client is never asked for what it did not declare. A bare `elicitation: {}` means forms.
 */
import { isObject, memberBytes, memberString, membersBytes } from '../../wire/json-members.js';
import type { Client, ClientCapabilities } from '../exchange.js';

const needs = ['form', 'url', 'sampling', 'samplingTools', 'roots'] as const;
export type Need = (typeof needs)[number];

/** The capability that a request needs; undefined: no client can be asked this. */
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

/** Whether this client can be asked anything. */
export const canBeAsked = ({ elicitation, elicitationUrl, sampling, roots }: ClientCapabilities): boolean =>
  elicitation || elicitationUrl || sampling || roots;

/** The value of `data.requiredCapabilities` in error -32021. */
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

const needTexts: Record<Need, string> = {
  form: 'elicitation',
  url: 'elicitation by url',
  sampling: 'sampling',
  samplingTools: 'sampling with tools',
  roots: 'roots',
};

export const describeNeeds = (missing: Iterable<Need>): string =>
  [...missing].map((need) => needTexts[need]).join(', ');

const asked = ['elicitation', 'sampling', 'roots'] as const;
const passed = ['experimental'] as const;
const extension = 'io.modelcontextprotocol/ui';

/** The shortest object that declares anything is longer. */
const emptyBytes = '{"a":1}'.length;

/** Written once for each session; a modern client declares anew with every request. */
const written = new WeakMap<Client['capabilities'], string>();

/** One JSON object. `isReachable` false: the client cannot be asked, whatever it declared. */
export function carriedCapabilities({ capabilities }: Client, isReachable: boolean): string {
  if (capabilities.raw.length < emptyBytes) return '{}';
  if (!isReachable) return render(capabilities.raw, passed);
  let text = written.get(capabilities);
  if (text === undefined) {
    text = render(capabilities.raw, [...asked, ...passed]);
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
/** Capabilities are handed on to servers with every request. */
export const capabilitiesBytesMax = 64 * 1024;

export class DeclaredCapabilities implements ClientCapabilities {
  readonly raw: Buffer;

  /** Anything but an object declares nothing. */
  constructor(raw: Buffer | undefined) {
    this.raw = isObject(raw) ? raw : none;
  }

  /** True for most clients. */
  get #isEmpty(): boolean {
    return this.raw.length === none.length;
  }

  /** Without a mode it means forms: the only mode of the first revision that had it. */
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
