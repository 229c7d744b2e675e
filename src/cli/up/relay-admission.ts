/**
 * Decides which relays a host accepts, and which variables it adopts from them.
 * Not here: the socket (relay-socket.ts).
 * Invariants: values of variables appear in no note. A variable of the host never changes; a missing one may be added, if the
 * configuration names it.
 */

import type { Hello, Welcome } from '../relay/hello.js';
import { isNewerVersion, relayProtocol, variableNames } from '../relay/hello.js';

interface AdmissionOptions {
  /** Real path of the configuration. */
  readonly config: string;
  readonly version: string;
  readonly pid: number;
  /** The environment of the host, to which variables are added. */
  readonly env: NodeJS.ProcessEnv;
  /** Options of `up` that the host was started with. */
  readonly options: Readonly<Record<string, string | undefined>>;
  readonly url: () => string | undefined;
  readonly isEnding: () => boolean;
  readonly onVariablesAdded: (names: readonly string[]) => void;
  /** Called for a relay that is newer than this host. `isUrgent`: this host cannot serve it. */
  readonly onNewer: (version: string, isUrgent: boolean) => void;
}

const namesShown = 10;

export class RelayAdmission {
  readonly #options: AdmissionOptions;
  /** Names of the variables that differ, by client. */
  readonly #differing = new Map<string, readonly string[]>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /** `fullAt`: set if the host is full, to its number of clients. */
  welcome(hello: Hello, fullAt?: number): Welcome {
    const { config, version, pid, url, isEnding, onNewer } = this.#options;
    const base = { hostler: relayProtocol, version, pid, url: url() ?? null, config, notes: [] };
    if (isEnding()) return { ...base, refused: 'stopping' };
    if (hello.config !== config) return { ...base, refused: 'config' };
    if (hello.hostler !== relayProtocol) {
      if (hello.hostler > relayProtocol) onNewer(hello.version, true);
      return { ...base, refused: 'protocol' };
    }
    if (fullAt !== undefined) return { ...base, refused: 'full', notes: [fullText(fullAt)] };
    if (isNewerVersion(hello.version, version)) onNewer(hello.version, false);
    return { ...base, notes: [...this.#adopt(hello), ...this.#otherOptions(hello)] };
  }

  ended(client: string): void {
    this.#differing.delete(client);
  }

  /** Texts for `status` and `doctor`. */
  notes(): readonly string[] {
    const names = new Set([...this.#differing.values()].flat());
    return names.size === 0 ? [] : [differText([...names])];
  }

  #adopt({ client, env }: Hello): readonly string[] {
    const own = this.#options.env;
    const named = new Set(variableNames(this.#options.config));
    const sent = Object.entries(env).filter(([name]) => named.has(name));
    const added = sent.filter(([name]) => own[name] === undefined);
    const differing = sent.filter(([name, value]) => own[name] !== undefined && own[name] !== value);
    for (const [name, value] of added) own[name] = value;
    if (added.length > 0) this.#options.onVariablesAdded(added.map(([name]) => name));
    const names = differing.map(([name]) => name);
    if (names.length > 0) this.#differing.set(client, names);
    return names.length === 0 ? [] : [differText(names)];
  }

  #otherOptions({ options }: Hello): readonly string[] {
    return Object.entries(options)
      .filter(([name, value]) => this.#options.options[name] !== value)
      .map(([name]) => `--${name} has no effect: the running Hostler was started with another value`);
  }
}

const fullText = (clients: number): string =>
  `the running Hostler serves ${clients} clients over stdio and takes no more; close one of them`;

const differText = (names: readonly string[]): string =>
  `${names.slice(0, namesShown).join(', ')}${names.length > namesShown ? ' and others' : ''}: a client has another value than the running Hostler, which keeps its own; after hostler restart the value of the next client applies`;
