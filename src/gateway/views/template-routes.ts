/**
 * Finds the servers of an endpoint whose resource templates match a URI.
 * Not here: URIs that a server lists (view.ts), matching one template (uri-templates.ts).
 * Invariants: at most `routedTemplatesMax` templates are matched. Servers share them fairly, so one server cannot push out the
 * templates of another. Every omitted template is reported with the reason.
 */
import type { UnroutedTemplates } from '../../host/status.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { ListedItem } from '../../session/lists.js';
import type { Entry } from './server-lists.js';
import { UriTemplate, type UriText } from './uri-templates.js';

export const routedTemplatesMax = 1_000;

/**
 * `too_many`: beyond the limit of the endpoint. `no_prefix`: the template begins with an expression, so it could claim the URIs
 * of every server. `unreadable`: the text is not a template, or exceeds the limits of one.
 */
type UnroutedReason = 'too_many' | 'no_prefix' | 'unreadable';

export interface UnroutedTemplate {
  readonly server: string;
  readonly template: string;
  readonly reason: UnroutedReason;
}

export type TemplateEntry = Pick<Entry, 'server' | 'key' | 'item'>;

interface Route {
  readonly server: string;
  readonly templates: readonly UriTemplate[];
}

interface Parsed {
  tries: number;
  readonly templates: [text: string, template: UriTemplate][];
}

/** At most `triesPerRoute * max` templates of one server are parsed. */
const triesPerRoute = 2;

export class TemplateRoutes {
  readonly unrouted: readonly UnroutedTemplate[];
  readonly #routes: readonly Route[];

  /** `entries` are in the order of their servers. */
  constructor(entries: readonly TemplateEntry[], max = routedTemplatesMax) {
    const unrouted: UnroutedTemplate[] = [];
    const byServer = new Map<string, Parsed>();
    for (const { server, key, item } of entries) {
      const read = byServer.get(server) ?? { tries: 0, templates: [] };
      byServer.set(server, read);
      // A server may list 50,000 templates. Those that can never be routed are not parsed.
      const isEnough = read.templates.length >= max || ++read.tries > triesPerRoute * max;
      const template = isEnough ? undefined : templateOf(item, key);
      if (template && template.head !== '') read.templates.push([key, template]);
      else {
        const reason = isEnough ? 'too_many' : template ? 'no_prefix' : 'unreadable';
        unrouted.push({ server, template: key, reason });
      }
    }
    const shares = fairShares(
      [...byServer.values()].map(({ templates }) => templates.length),
      max,
    );
    this.#routes = [...byServer].map(([server, { templates }], i) => {
      const share = shares[i] as number;
      for (const [template] of templates.slice(share)) unrouted.push({ server, template, reason: 'too_many' });
      return { server, templates: templates.slice(0, share).map(([, template]) => template) };
    });
    this.unrouted = unrouted;
  }

  /** Returns each server once, in the order of the servers. */
  serversOf(uri: UriText): string[] {
    const found: string[] = [];
    for (const { server, templates } of this.#routes)
      if (templates.some((template) => template.matches(uri))) found.push(server);
    return found;
  }
}

/** Splits `max` between the counts `wanted`. Counts below an equal share get all; the others share the rest equally. */
export function fairShares(wanted: readonly number[], max: number): number[] {
  const shares = wanted.map(() => 0);
  const bySize = wanted.map((count, i) => [count, i] as const).sort(([a], [b]) => a - b);
  let left = max;
  bySize.forEach(([count, i], rank) => {
    const share = Math.min(count, Math.floor(left / (bySize.length - rank)));
    shares[i] = share;
    left -= share;
  });
  return shares;
}

/** Parsed templates by item. Views share items, so each template is parsed once. */
const parsed = new WeakMap<ListedItem, { readonly template: UriTemplate | undefined }>();

function templateOf(item: ListedItem, text: string): UriTemplate | undefined {
  let known = parsed.get(item);
  if (!known) {
    known = { template: UriTemplate.parse(text) };
    parsed.set(item, known);
  }
  return known.template;
}

const shownMax = 2_000;
const shownChars = 200;

/** Groups unrouted templates by server, for the status of the servers. */
export function unroutedByServer(unrouted: readonly UnroutedTemplate[]): ReadonlyMap<string, UnroutedTemplates> {
  const byServer = new Map<string, { count: number; templates: { template: string; reason: string }[] }>();
  for (const { server, template, reason } of unrouted) {
    const own = byServer.get(server) ?? { count: 0, templates: [] };
    byServer.set(server, own);
    own.count++;
    // The template is text of a server: it is bounded, and escaped for terminals.
    if (own.templates.length < shownMax) own.templates.push({ template: neutraliseLine(template, shownChars), reason });
  }
  return byServer;
}
