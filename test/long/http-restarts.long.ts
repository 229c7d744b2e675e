/** W6 at full count: fifty restarts, with the bar of 2 s. */
await import('../reliability/http-restarts.test.js');
