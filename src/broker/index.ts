/** `hostler/broker`: carrying calls of workers on other machines to a Host. */
export type { CallJournal, HostLink, OpenHostLink, OpenWorkerLink, Sender, WorkerLink } from './ports.js';
