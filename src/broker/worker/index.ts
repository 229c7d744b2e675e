/** `hostler/worker`: the tools of a host on another machine, used through a broker. */
export type { Trace } from '../protocol/messages.js';
export type { Manifest, ManifestTool } from '../protocol/reply-body.js';
export { type ConnectOptions, type ConnectWorkerOptions, connect, connectWorker } from './connect-worker.js';
export type { OpenConnection, WorkerConnection } from './connection.js';
export type { ConnectionState } from './connection-keeper.js';
export type {
  RemoteCallOptions,
  RemoteEvents,
  RemoteResult,
  RemoteStatus,
  RemoteTools,
  RemoteToolsOptions,
} from './remote-tools.js';
