/** The part of a Host that the gateway uses. */
import type { Host } from '../host/host.js';
import type { HostCallOptions, ToolResult } from '../host/host-interface.js';
import type { JsonText } from '../wire/channel.js';

type HostPart =
  | 'names'
  | 'groups'
  | 'known'
  | 'onKnownChanged'
  | 'isAllowed'
  | 'accessKey'
  | 'rulesRevision'
  | 'request'
  | 'subscribe'
  | 'endInstance';

export interface Upstreams extends Pick<Host, HostPart> {
  /** Capabilities that an endpoint with many servers declares, as one JSON object. Default: all that the gateway can carry. */
  readonly carried?: string;
  /** Resolves when the first listings of these servers have settled, or after 1 s; undefined if none is pending. */
  startupListing(servers: readonly string[]): Promise<void> | undefined;
  call(server: string, tool: string, args: JsonText, options: HostCallOptions): Promise<ToolResult>;
}
