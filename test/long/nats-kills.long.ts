/** B2 on NATS at full length: two hundred kills. */
process.env.NATS_KILLS ??= '200';
await import('../broker/nats/kills.test.js');
