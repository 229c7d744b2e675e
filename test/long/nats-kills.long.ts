/** B2 on NATS at a larger count: three hundred kills. */
process.env.NATS_KILLS ??= '300';
await import('../broker/nats/kills.test.js');
