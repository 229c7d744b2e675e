/** B7 at full length: a hundred partitions for each place of the host, and one of 45 s. */
process.env.PARTITIONS ??= '100';
process.env.LONG_SECONDS ??= '45';
await import('../reliability/broker-partition.test.js');
