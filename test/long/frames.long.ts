/** F1 at full count: fifty million frames. */
process.env.F1_FRAMES ??= '50000000';
await import('../fuzz/f1-frames.test.js');
