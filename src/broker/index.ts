/** `hostler/broker`: carrying calls of workers on other machines to a Host. */
export { type BrokerOptions, createBroker } from './create-broker.js';
export type { BrokerEvent, BrokerStatus } from './embedded/events.js';
export type { CallJournal, HostLink, OpenHostLink, OpenWorkerLink, Sender, WorkerLink } from './ports.js';
export type { DeadLetters, ServedWorkers } from './serve-workers.js';
export type { ServedHost } from './service/served-host.js';
export type { ServiceEvent, ServiceStatus } from './service/service-events.js';
