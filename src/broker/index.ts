/** `hostler/broker`: serving the tools of a Host to workers on other machines. */
export type { BrokerEvent, ServiceStatus } from './broker-events.js';
export type { CallId, CallLog, CallOutcome, CallRow, CallState, LogUsage, NewCall } from './calls/call-log.js';
export { type BrokerOptions, createBroker } from './create-broker.js';
export type { BrokerStatus, ServedWorkers } from './serve-workers.js';
export type { ServedHost } from './service/served-host.js';
