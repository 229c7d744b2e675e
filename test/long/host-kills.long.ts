/** S1 through the host at full count: two thousand kills. */
process.env.KILLS ??= '2000';
await import('../reliability/host-kills.test.js');
