/** `hostler/worker`: the servers of a Host on another machine, used through a broker. */
export type { OpenWorkerLink, Sender } from '../ports.js';
