/**
 * The parts of a gateway, loaded when they are needed: what a start does not use does not slow it down.
 * Not here: joining them (gateway.ts).
 */
import type { Readable, Writable } from 'node:stream';
import type { Keys } from '../config/keys.js';
import type { Host } from '../host/host.js';
import type { Clock } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { Principal } from '../policy/call.js';
import type { Bridge } from './bridge/bridge-ports.js';
import type { EndpointId } from './endpoint-id.js';
import type { PrincipalNow, Router } from './exchange.js';
import type { Upstreams } from './upstreams.js';

type OnProblem = (error: unknown) => void;

export interface RouterOptions {
  readonly upstreams: Upstreams;
  readonly bridge: Bridge;
  readonly clock: Clock;
  readonly serverInfo: { readonly name: string; readonly version: string };
  readonly onProblem: OnProblem;
}

export interface RouteAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

export interface Route {
  readonly needsKey: boolean;
  answer(): RouteAnswer | Promise<RouteAnswer>;
}

export interface HttpIngressOptions {
  readonly router: Router;
  readonly clock: Clock;
  readonly random: Random;
  readonly authenticate: (authorization: string | undefined) => Principal | undefined;
  readonly listen: {
    readonly host: string;
    readonly port: number;
    readonly hosts: readonly string[];
    readonly origins: readonly string[];
  };
  readonly routes: ReadonlyMap<string, Route>;
  readonly isOpen: () => boolean;
  readonly onProblem: OnProblem;
}

export interface HttpIngress {
  figures(): IngressFigures;
  allow(names: { readonly hosts: readonly string[]; readonly origins: readonly string[] }): void;
  listen(): Promise<string>;
  rekeyed(now: PrincipalNow): void;
  close(drainMs: number): Promise<void>;
}

export interface StdioIngressOptions {
  readonly router: Router;
  readonly clock: Clock;
  readonly input: Readable;
  readonly output: Writable;
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  readonly onProblem: OnProblem;
}

/** What ingresses count by themselves. */
export interface IngressFigures {
  readonly legacySessions: number;
  readonly modernStreams: number;
  readonly httpAnswers: Readonly<Record<number, number>>;
}

export interface Metrics {
  readonly contentType: string;
  text(): Promise<string>;
  close(): void;
}

export interface Health {
  readonly healthz: () => RouteAnswer;
  readonly Readiness: new (
    clock: Clock,
  ) => {
    opened(firstSight: Promise<unknown> | undefined): void;
    stopping(): void;
    readonly readyz: () => RouteAnswer;
  };
}

export interface StdioIngress {
  readonly closed: Promise<void>;
  figures(): IngressFigures;
  close(drainMs?: number): Promise<void>;
}

export interface Keyring {
  authenticate(authorization: string | undefined): Principal | undefined;
  now: PrincipalNow;
  nextExpiryMs(): number | undefined;
  replace(keys: Keys): void;
}

/** Each is one import, made when it is first asked for. */
export interface GatewayParts {
  router(): Promise<(options: RouterOptions) => Router>;
  bridge(): Promise<(options: { readonly clock: Clock; readonly random: Random }) => Bridge>;
  http(): Promise<(options: HttpIngressOptions) => HttpIngress>;
  stdio(): Promise<(options: StdioIngressOptions) => StdioIngress>;
  keyring(): Promise<new (options: { clock: Clock; localKey: string | undefined; keys: Keys }) => Keyring>;
  parseKeys(): Promise<(keys: unknown, onProblem: (problem: HostError) => void) => Keys>;
  localKey(): Promise<(dataDir: string) => { readonly key: string; readonly isNew: boolean }>;
  metrics(): Promise<(host: Host, options: { readonly ingress: () => IngressFigures }) => Metrics>;
  health(): Promise<Health>;
}

export const defaultParts: GatewayParts = {
  router: async () => (await import('./router.js')).createRouter,
  bridge: async () => (await import('./bridge/bridge.js')).createBridge,
  http: async () => (await import('./http/http-ingress.js')).createHttpIngress,
  stdio: async () => (await import('./stdio/stdio-ingress.js')).createStdioIngress,
  keyring: async () => (await import('./keys.js')).Keyring,
  parseKeys: async () => (await import('../config/keys.js')).parseKeys,
  localKey: async () => (await import('./local-key.js')).readOrMakeLocalKey,
  metrics: async () => (await import('./metrics.js')).createMetrics,
  health: () => import('./health.js'),
};
