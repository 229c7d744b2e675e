/** B7 at full length: for each far side of the cable (host, nats-server) a hundred partitions, and one of 45 s. */
process.env.PARTITIONS ??= '100';
process.env.LONG_SECONDS ??= '45';
await import('../reliability/broker-partition.test.js');
