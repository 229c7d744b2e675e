/** `hostler/worker`: the servers of a Host on another machine, used through a broker. */
export type { Manifest, ManifestTool, Trace } from '../messages.js';
export type { OpenWorkerLink, Sender } from '../ports.js';
export { type ConnectOptions, type ConnectWorkerOptions, connect, connectWorker } from './connect-worker.js';
export type { LinkState } from './link-keeper.js';
export type { RemoteCallOptions, RemoteResult, RemoteStatus, RemoteTools, RemoteToolsOptions } from './remote-tools.js';
