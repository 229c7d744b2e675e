/** Era and name of each server, at hand for every answer that is put into a client's words. */
import type { Era } from '../../wire/channel.js';
import type { Upstreams } from '../upstreams.js';

export interface ServerInfo {
  readonly era: Era;
  /** Undefined: it was never seen. */
  readonly knownEra: Era | undefined;
  /** One JSON object. */
  readonly info: string;
}

export class ServerInfoCache {
  /** Who answers where many servers do: one JSON object. */
  readonly gatewayInfo: string;
  readonly #upstreams: Upstreams;
  readonly #speakers = new Map<string, ServerInfo>();
  readonly #unknown: ServerInfo;

  constructor(upstreams: Upstreams, gatewayInfo: string) {
    this.#upstreams = upstreams;
    this.gatewayInfo = gatewayInfo;
    this.#unknown = { era: 'legacy', knownEra: undefined, info: gatewayInfo };
  }

  /** Of a server that was never seen the words are taken for those of the legacy era, in which nothing marks them. */
  of(server: string): ServerInfo {
    const kept = this.#speakers.get(server);
    if (kept) return kept;
    const facts = this.#upstreams.known(server)?.facts;
    if (!facts) return this.#unknown;
    const speaker = {
      era: facts.era,
      knownEra: facts.era,
      info: facts.serverInfo?.toString('utf8') ?? this.gatewayInfo,
    };
    this.#speakers.set(server, speaker);
    return speaker;
  }

  changed(server: string): void {
    this.#speakers.delete(server);
  }
}
