/** `hostler/broker`: serving the tools of a Host to workers on other machines. */
export type { BrokerStatus, LogUsage, ServiceStatus } from '../host/broker-status.js';
export type { BrokerEvent } from './broker-events.js';
export type { CallId, CallLog, CallOutcome, CallRow, CallState, NewCall } from './calls/call-log.js';
export { type BrokerOptions, createBroker, type ServedWorkers } from './serve-workers.js';
export type { ServedHost } from './service/transport.js';
