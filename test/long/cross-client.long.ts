/** X8 at full count: two thousand calls of each of 64 clients. */
process.env.CALLS ??= '2000';
await import('../gateway/cross-client.test.js');
