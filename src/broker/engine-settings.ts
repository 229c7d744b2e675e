/**
 * The settings of the configuration that are for the embedded broker, in its words; for whoever opens one (serve-workers.ts,
 * cli/broker.ts).
 * Not here: what may stand in a configuration (config/broker-settings.ts), keys (broker-keys.ts).
 */
import path from 'node:path';
import type { BrokerSettings } from '../config/broker-settings.js';

/** Where messages and calls are kept. */
export const storeFolder = (dataDir: string): string => path.join(dataDir, 'broker');

/** Its files, wherever Hostler was started. */
export function withFilesBelow(folder: string, settings: BrokerSettings): BrokerSettings {
  const { keyFile, listen } = settings;
  const below = (file: string) => path.resolve(folder, file);
  const tls = listen.tls && { cert: below(listen.tls.cert), key: below(listen.tls.key) };
  return { ...settings, keyFile: keyFile && below(keyFile), listen: { ...listen, tls } };
}

export const limitsOf = ({ limits }: BrokerSettings) => ({
  connections: limits.connections,
  mailboxMessages: limits.mailboxMessages,
  mailboxBytes: limits.mailboxBytes,
  rate: { perSecond: limits.messagesPerSecond, burst: limits.burst },
});

export const listenOf = ({ listen: { tls, ...listen } }: BrokerSettings) => ({ ...listen, ...(tls ? { tls } : {}) });
